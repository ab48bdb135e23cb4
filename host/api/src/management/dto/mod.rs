//! The wire shapes of the management API, with their schemas. A field that is not set is absent.

mod billing;
mod delivery;
mod endpoint;
mod handler;
mod key;
mod log;
mod registry_auth;
mod release;
pub(crate) mod template;
mod volume;

pub(crate) use billing::{Amount, BillingRecord};
pub(crate) use delivery::Delivery;
pub(crate) use endpoint::{Endpoint, EndpointInput, EndpointWithSecret, NewEndpoint};
pub(crate) use handler::Handler;
pub(crate) use key::{Key, KeyInput, KeyWithText};
pub(crate) use log::LogLine;
pub(crate) use registry_auth::{RegistryAuth, RegistryAuthInput};
pub(crate) use release::{Release, RollbackInput};
pub(crate) use template::{NewTemplate, Template, TemplateInput};
pub(crate) use volume::{NetworkVolume, NetworkVolumeInput, NewNetworkVolume};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// For `deserialize_with`: an object, or null. Serde alone would also accept a list of the
/// fields' values.
fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let fields = Option::<serde_json::Map<String, serde_json::Value>>::deserialize(deserializer)?;
    fields.map(|fields| T::deserialize(fields).map_err(D::Error::custom)).transpose()
}

/// The hardware of workers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub(crate) enum ComputeType {
    #[serde(rename = "CPU")]
    Cpu,
}

/// Defines the schema of an input some of whose fields are required for a new object.
macro_rules! requiring {
    ($(#[$doc:meta])* $name:ident = $input:ty, $fields:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                crate::openapi::schema::requiring::<$input>($fields)
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn schemas(
                into: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>,
            ) {
                into.push((<$input>::name().into(), <$input as utoipa::PartialSchema>::schema()));
                <$input>::schemas(into);
            }
        }
    };
}
use requiring;
