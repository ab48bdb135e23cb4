//! Endpoints.

use std::collections::BTreeMap;

use gristmill_core::egress::{AllowedHosts, HostPattern};
use gristmill_core::endpoint::{self, Metering};
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ComputeType, requiring};
use crate::openapi::schema;
use crate::whole;
use crate::wire_time::rfc3339;

/// An endpoint to create, or the fields of one to change.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointInput {
    /// Only for a new one; a random id when it is left out.
    #[schema(value_type = Option<schema::EndpointId>)]
    pub(crate) id: Option<EndpointId>,
    #[schema(value_type = Option<schema::Name>)]
    pub(crate) name: Option<String>,
    /// The template that says what it runs.
    #[schema(value_type = Option<schema::Id>)]
    pub(crate) template_id: Option<TemplateId>,
    #[schema(value_type = Option<schema::WorkersMin>)]
    #[serde(default, deserialize_with = "whole::optional")]
    pub(crate) workers_min: Option<u64>,
    #[schema(value_type = Option<schema::WorkersMax>)]
    #[serde(default, deserialize_with = "whole::optional")]
    pub(crate) workers_max: Option<u64>,
    #[schema(value_type = Option<schema::IdleTimeout>)]
    #[serde(default, deserialize_with = "whole::optional")]
    pub(crate) idle_timeout: Option<u64>,
    #[schema(value_type = Option<schema::ExecutionTimeout>)]
    #[serde(default, deserialize_with = "whole::optional")]
    pub(crate) execution_timeout_ms: Option<u64>,
    #[schema(value_type = Option<schema::MemoryMib>)]
    #[serde(default, deserialize_with = "whole::optional")]
    pub(crate) memory_mib: Option<u64>,
    #[schema(value_type = Option<schema::Fuel>)]
    #[serde(default, deserialize_with = "whole::optional")]
    pub(crate) max_fuel: Option<u64>,
    #[schema(value_type = Option<schema::Metering>)]
    pub(crate) metering: Option<Metering>,
    /// What its handlers may call.
    #[schema(value_type = Option<Vec<schema::HostPattern>>)]
    pub(crate) allowed_hosts: Option<Vec<HostPattern>>,
    /// Over the template's.
    pub(crate) env: Option<BTreeMap<String, String>>,
}

requiring! {
    /// An endpoint to create.
    NewEndpoint = EndpointInput, &["templateId"]
}

/// An endpoint as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoint {
    #[schema(value_type = schema::EndpointId)]
    id: EndpointId,
    #[schema(value_type = schema::Id)]
    user_id: OwnerId,
    name: String,
    #[schema(value_type = schema::Id)]
    template_id: TemplateId,
    /// Counts the changes; the first version is 1.
    version: u32,
    #[schema(value_type = schema::Time)]
    created_at: String,
    compute_type: ComputeType,
    data_center_ids: [String; 0],
    workers_min: u32,
    workers_max: u32,
    idle_timeout: u32,
    scaler_type: ScalerType,
    scaler_value: u32,
    execution_timeout_ms: u64,
    memory_mib: u64,
    #[schema(value_type = schema::Metering)]
    metering: Metering,
    #[schema(value_type = Vec<schema::HostPattern>)]
    allowed_hosts: AllowedHosts,
    env: BTreeMap<String, String>,
    /// Absent: derived from the timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    max_fuel: Option<u64>,
}

/// What workers are started for.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ScalerType {
    RequestCount,
}

impl From<&endpoint::Endpoint> for Endpoint {
    fn from(endpoint: &endpoint::Endpoint) -> Self {
        Self {
            id: endpoint.id.clone(),
            user_id: endpoint.owner.clone(),
            name: endpoint.name.clone(),
            template_id: endpoint.template.clone(),
            version: endpoint.version,
            created_at: rfc3339(endpoint.created_at),
            compute_type: ComputeType::Cpu,
            data_center_ids: [],
            workers_min: endpoint.scaling.workers_min,
            workers_max: endpoint.scaling.workers_max,
            idle_timeout: endpoint.scaling.idle_timeout_s,
            scaler_type: ScalerType::RequestCount,
            scaler_value: 1,
            execution_timeout_ms: endpoint.execution_timeout_ms,
            memory_mib: endpoint.limits.memory_bytes_max >> 20,
            metering: endpoint.limits.metering,
            allowed_hosts: endpoint.allowed_hosts.clone(),
            env: endpoint.env.clone(),
            max_fuel: endpoint.limits.fuel_max,
        }
    }
}

/// An endpoint with the secret of its webhooks: shown when it is made, and when it is rotated.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointWithSecret {
    #[serde(flatten)]
    endpoint: Endpoint,
    /// What its webhooks are signed with.
    webhook_secret: String,
}

impl From<&endpoint::Endpoint> for EndpointWithSecret {
    fn from(endpoint: &endpoint::Endpoint) -> Self {
        let webhook_secret = endpoint.webhook_secrets.current().reveal();
        Self { endpoint: endpoint.into(), webhook_secret }
    }
}
