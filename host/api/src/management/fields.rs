//! The fields of bodies. A body with a field that its type does not have is refused, and the refusal
//! names the field and those of the type: a misspelled field would otherwise be a setting that was
//! silently not made.
//!
//! Some fields have no effect and are accepted all the same ([`Body::is_unused`]): those that clients
//! of the hosted service send for hardware, and those of an answer that only the host sets, so that a
//! client can send an object back with a change.

use std::fmt;
use std::marker::PhantomData;

use gristmill_wire::management::{
    EndpointInput, NetworkVolumeInput, NewJobAction, NewKey, NewNetworkVolume, NewRegistryAuth,
    Rollback, TemplateInput,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess,
    Visitor,
};

use super::dto::template::branded_field;

/// The body of a management call. Its type refuses unknown fields.
pub(crate) trait Body: DeserializeOwned + Send + 'static {
    /// Whether a field that the type does not have is accepted, without effect. `brand` is part of the
    /// name of a template's field.
    fn is_unused(_name: &str, _brand: &str) -> bool {
        false
    }
}

impl Body for NewJobAction {}
impl Body for NewKey {}
impl Body for NewNetworkVolume {}
impl Body for NewRegistryAuth {}
impl Body for Rollback {}

impl Body for EndpointInput {
    fn is_unused(name: &str, _: &str) -> bool {
        const HARDWARE: [&str; 10] = [
            "allowedCudaVersions",
            "computeType",
            "cpuFlavorIds",
            "dataCenterIds",
            "flashboot",
            "gpuCount",
            "gpuTypeIds",
            "instanceIds",
            "minCudaVersion",
            "vcpuCount",
        ];
        const ANSWERED: [&str; 5] =
            ["createdAt", "inputSchema", "templateIsDeleted", "userId", "version"];
        HARDWARE.contains(&name) || ANSWERED.contains(&name)
    }
}

impl Body for TemplateInput {
    fn is_unused(name: &str, brand: &str) -> bool {
        matches!(name, "earned" | "runtimeInMin") || name == branded_field(brand)
    }
}

impl Body for NetworkVolumeInput {
    fn is_unused(name: &str, _: &str) -> bool {
        matches!(name, "id" | "dataCenterId")
    }
}

/// Reads a body of the type `T`: an object. Serde alone would also accept an array of the fields'
/// values.
pub(crate) struct BodySeed<'b, T> {
    brand: &'b str,
    body: PhantomData<T>,
}

impl<'b, T> BodySeed<'b, T> {
    pub(crate) fn new(brand: &'b str) -> Self {
        Self { brand, body: PhantomData }
    }
}

impl<'de, T: Body> DeserializeSeed<'de> for BodySeed<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Body> Visitor<'de> for BodySeed<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        let is_unused = |name: &str| T::is_unused(name, self.brand);
        T::deserialize(MapAccessDeserializer::new(Used { fields, is_unused }))
    }
}

/// The fields of an object without the unused ones.
struct Used<A, F> {
    fields: A,
    is_unused: F,
}

impl<'de, A: MapAccess<'de>, F: Fn(&str) -> bool> MapAccess<'de> for Used<A, F> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.fields.next_key::<String>()? {
            if !(self.is_unused)(&name) {
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
            self.fields.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
    }
}
