//! The fields of bodies. A body with a field that its type does not have is refused, and the
//! refusal names the field and those of the type: a misspelled field would otherwise be a setting
//! that was silently not made.
//!
//! Some fields have no effect and are accepted all the same ([`Unused`]): those that clients of the
//! hosted service send for hardware, and those of an answer that only the host sets, so that a
//! client can send an object back with a change. A body that requests a GPU is refused, unless the
//! operator has the host ignore such requests; the answer then names the ignored fields.

use std::fmt;
use std::marker::PhantomData;

use gristmill_wire::management::{
    EndpointInput, NetworkVolumeInput, NewJobAction, NewKey, NewNetworkVolume, NewRegistryAuth,
    Rollback, ScheduleInput, TemplateInput,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, IntoDeserializer,
    MapAccess, Visitor,
};
use serde_json::Value;

use crate::request::brand::branded_field;
use crate::state::Compatibility;

/// A field that a body may have although its type does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unused {
    /// Any value has no effect.
    Always,
    /// The field requests a GPU, unless its value is [empty](requests_gpu).
    Gpu,
}

/// The body of a management call. Its type refuses unknown fields.
pub(crate) trait Body: DeserializeOwned + Send + 'static {
    /// The use of a field that the type does not have; `None`: the body is refused. `brand` is part
    /// of the name of a template's field.
    fn unused(_name: &str, _brand: &str) -> Option<Unused> {
        None
    }
}

impl Body for NewJobAction {}
impl Body for NewKey {}
impl Body for NewNetworkVolume {}
impl Body for NewRegistryAuth {}
impl Body for Rollback {}

impl Body for ScheduleInput {
    fn unused(name: &str, _: &str) -> Option<Unused> {
        let is_answered = matches!(
            name,
            "userId" | "createdAt" | "next" | "jobs" | "skipped" | "missed" | "ticks"
        );
        is_answered.then_some(Unused::Always)
    }
}

impl Body for EndpointInput {
    fn unused(name: &str, _: &str) -> Option<Unused> {
        const GPU: [&str; 5] =
            ["allowedCudaVersions", "computeType", "gpuCount", "gpuTypeIds", "minCudaVersion"];
        const HARDWARE: [&str; 5] =
            ["cpuFlavorIds", "dataCenterIds", "flashboot", "instanceIds", "vcpuCount"];
        const ANSWERED: [&str; 8] = [
            "createdAt",
            "ignoredFields",
            "inputSchema",
            "template",
            "templateIsDeleted",
            "userId",
            "version",
            "workers",
        ];
        if GPU.contains(&name) {
            return Some(Unused::Gpu);
        }
        (HARDWARE.contains(&name) || ANSWERED.contains(&name)).then_some(Unused::Always)
    }
}

impl Body for TemplateInput {
    fn unused(name: &str, brand: &str) -> Option<Unused> {
        let is_answered = matches!(name, "earned" | "runtimeInMin") || name == branded_field(brand);
        is_answered.then_some(Unused::Always)
    }
}

impl Body for NetworkVolumeInput {
    fn unused(name: &str, _: &str) -> Option<Unused> {
        matches!(name, "id" | "dataCenterId").then_some(Unused::Always)
    }
}

/// Whether the value of a [GPU field](Unused::Gpu) requests one. Clients also send the empty values
/// of their types, and `computeType` as an answer has it.
///
/// # Errors
/// The values that the field may have.
fn requests_gpu(name: &str, value: &Value) -> Result<bool, &'static str> {
    match (name, value) {
        (_, Value::Null) => Ok(false),
        ("computeType", Value::String(text)) if text.is_empty() || text == "CPU" => Ok(false),
        ("computeType", Value::String(text)) if text == "GPU" => Ok(true),
        ("computeType", _) => Err("`CPU` or `GPU`"),
        ("gpuCount", count) => count.as_u64().map(|count| count > 0).ok_or("a whole number"),
        ("minCudaVersion", Value::String(text)) => Ok(!text.is_empty()),
        ("minCudaVersion", _) => Err("a string"),
        (_, Value::Array(list)) if list.iter().all(Value::is_string) => Ok(!list.is_empty()),
        (_, _) => Err("a list of strings"),
    }
}

/// Reads a body of the type `T`: an object. Serde alone would also accept an array of the fields'
/// values.
pub(crate) struct BodySeed<'b, T> {
    compatibility: &'b Compatibility,
    ignored: &'b mut Vec<String>,
    body: PhantomData<T>,
}

impl<'b, T> BodySeed<'b, T> {
    /// `ignored` gets the names of the fields that requested a GPU.
    pub(crate) fn new(compatibility: &'b Compatibility, ignored: &'b mut Vec<String>) -> Self {
        Self { compatibility, ignored, body: PhantomData }
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
        let Self { compatibility, ignored, .. } = self;
        let unused = |name: &str| T::unused(name, &compatibility.brand);
        let ignores_gpu = compatibility.ignores_gpu;
        T::deserialize(MapAccessDeserializer::new(Used { fields, unused, ignores_gpu, ignored }))
    }
}

/// The fields of an object without the unused ones.
struct Used<'b, A, F> {
    fields: A,
    unused: F,
    ignores_gpu: bool,
    ignored: &'b mut Vec<String>,
}

impl<'de, A: MapAccess<'de>, F: Fn(&str) -> Option<Unused>> MapAccess<'de> for Used<'_, A, F> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.fields.next_key::<String>()? {
            match (self.unused)(&name) {
                None => return seed.deserialize(name.into_deserializer()).map(Some),
                Some(Unused::Always) => drop(self.fields.next_value::<IgnoredAny>()?),
                Some(Unused::Gpu) => match requests_gpu(&name, &self.fields.next_value()?) {
                    Ok(false) => {}
                    Ok(true) if self.ignores_gpu => self.ignored.push(name),
                    Ok(true) => {
                        return Err(A::Error::custom(format!(
                            "`{name}` requests a GPU, and this host runs handlers on its CPU only; \
                             leave the field out, or start the host with `--ignore-gpu-fields`"
                        )));
                    }
                    Err(allowed) => {
                        return Err(A::Error::custom(format!("`{name}` must be {allowed}")));
                    }
                },
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
    }
}
