//! The wire shapes of the management API.

use std::collections::BTreeMap;

use gristmill_core::catalog::{Component, Image};
use gristmill_core::delivery::{Delivery, DeliveryState};
use gristmill_core::egress::HostPattern;
use gristmill_core::endpoint::{Endpoint, Metering};
use gristmill_core::id::{EndpointId, KeyId, TemplateId};
use gristmill_core::key::{ApiKey, Scope};
use gristmill_core::template::Template;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::wire_time::rfc3339;

/// A template to create, or the fields of one to change.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateInput {
    pub(crate) id: Option<TemplateId>,
    pub(crate) name: Option<String>,
    pub(crate) image_name: Option<String>,
    pub(crate) container_disk_in_gb: Option<u32>,
    pub(crate) volume_in_gb: Option<u32>,
    pub(crate) volume_mount_path: Option<String>,
    pub(crate) container_registry_auth_id: Option<String>,
    pub(crate) docker_entrypoint: Option<Vec<String>>,
    pub(crate) docker_start_cmd: Option<Vec<String>>,
    pub(crate) env: Option<BTreeMap<String, String>>,
    pub(crate) ports: Option<Vec<String>>,
    pub(crate) readme: Option<String>,
    pub(crate) is_public: Option<bool>,
    pub(crate) is_serverless: Option<bool>,
}

/// A template as it is shown: the 18 documented fields, none of them null, and the one that says
/// whether it is the platform's own a second time under the operator's brand.
pub(crate) fn template(template: &Template, brand: &str) -> Value {
    let document = json!({
        "id": template.id,
        "name": template.name,
        "imageName": template.image,
        "category": "CPU",
        "containerDiskInGb": template.container_disk_gb,
        "volumeInGb": template.volume_gb,
        "volumeMountPath": template.volume_mount_path,
        "containerRegistryAuthId": template.registry_auth,
        "dockerEntrypoint": template.entrypoint,
        "dockerStartCmd": template.start_command,
        "env": template.env,
        "ports": template.ports,
        "readme": template.readme,
        "isPublic": template.is_public,
        "isPlatform": template.is_platform,
        "isServerless": template.is_serverless,
        "earned": 0,
        "runtimeInMin": 0,
    });
    let Value::Object(mut document) = document else { return document };
    document.insert(format!("is{brand}"), template.is_platform.into());
    Value::Object(document)
}

/// An endpoint to create, or the fields of one to change.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointInput {
    pub(crate) id: Option<EndpointId>,
    pub(crate) name: Option<String>,
    pub(crate) template_id: Option<TemplateId>,
    pub(crate) workers_min: Option<u64>,
    pub(crate) workers_max: Option<u64>,
    pub(crate) idle_timeout: Option<u64>,
    pub(crate) execution_timeout_ms: Option<u64>,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) max_fuel: Option<u64>,
    pub(crate) metering: Option<Metering>,
    pub(crate) allowed_hosts: Option<Vec<HostPattern>>,
    pub(crate) env: Option<BTreeMap<String, String>>,
}

/// An endpoint as it is shown.
pub(crate) fn endpoint(endpoint: &Endpoint) -> Value {
    let document = json!({
        "id": endpoint.id,
        "userId": endpoint.owner,
        "name": endpoint.name,
        "templateId": endpoint.template,
        "version": endpoint.version,
        "createdAt": rfc3339(endpoint.created_at),
        "computeType": "CPU",
        "dataCenterIds": [],
        "workersMin": endpoint.scaling.workers_min,
        "workersMax": endpoint.scaling.workers_max,
        "idleTimeout": endpoint.scaling.idle_timeout_s,
        "scalerType": "REQUEST_COUNT",
        "scalerValue": 1,
        "executionTimeoutMs": endpoint.execution_timeout_ms,
        "memoryMib": endpoint.limits.memory_bytes_max >> 20,
        "metering": endpoint.limits.metering,
        "allowedHosts": endpoint.allowed_hosts,
        "env": endpoint.env,
    });
    with_optional(document, "maxFuel", endpoint.limits.fuel_max.map(Value::from))
}

/// An endpoint with the secret of its webhooks: shown when it is made, and when it is rotated.
pub(crate) fn endpoint_with_secret(endpoint: &Endpoint) -> Value {
    let secret = endpoint.webhook_secrets.current().reveal();
    with_optional(self::endpoint(endpoint), "webhookSecret", Some(secret.into()))
}

/// A webhook's delivery as it is shown.
pub(crate) fn delivery(delivery: &Delivery) -> Value {
    let (state, time_field, at) = match delivery.state {
        DeliveryState::Pending { due_at } => ("PENDING", "nextAttemptAt", due_at),
        DeliveryState::Delivered { at } => ("DELIVERED", "endedAt", at),
        DeliveryState::GivenUp { at } => ("GIVEN_UP", "endedAt", at),
    };
    let document = json!({
        "id": delivery.webhook_id(),
        "jobId": delivery.job,
        "jobStatus": delivery.job_status.as_str(),
        "url": delivery.url,
        "state": state,
        "attempts": delivery.attempts,
        "createdAt": rfc3339(delivery.created_at),
        (time_field): rfc3339(at),
    });
    let last = &delivery.last;
    let document = with_optional(document, "lastStatus", last.status.map(Value::from));
    with_optional(document, "lastError", last.error.clone().map(Value::from))
}

/// An uploaded handler as it is shown.
pub(crate) fn handler(image: &Image, component: &Component) -> Value {
    json!({
        "name": image.name,
        "tag": image.tag,
        "image": image.reference(),
        "sha256": component.digest,
        "sizeInBytes": component.bytes,
        "imports": component.imports,
        "exports": component.exports,
        "compileMs": component.compile_ms,
        "updatedAt": rfc3339(image.updated_at),
    })
}

/// A key to create.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyInput {
    pub(crate) name: String,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) endpoints: Option<Vec<EndpointId>>,
    pub(crate) expires_in_seconds: Option<u64>,
}

/// A key as it is shown: never its secret, except once when it is made.
pub(crate) fn key(key: &ApiKey, text: Option<&str>) -> Value {
    let document = json!({
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "createdAt": rfc3339(key.created_at),
    });
    let document = with_optional(
        document,
        "endpoints",
        key.endpoints.as_ref().map(|endpoints| json!(endpoints)),
    );
    let document =
        with_optional(document, "expiresAt", key.expires_at.map(|at| rfc3339(at).into()));
    with_optional(document, "key", text.map(Value::from))
}

fn with_optional(document: Value, field: &str, value: Option<Value>) -> Value {
    match (document, value) {
        (Value::Object(fields), Some(value)) => {
            let added = (field.to_owned(), value);
            Value::Object(fields.into_iter().chain([added]).collect::<Map<_, _>>())
        }
        (document, _) => document,
    }
}

/// What a key's id in a path may name.
pub(crate) fn key_id(text: &str) -> Option<KeyId> {
    KeyId::new(text).ok()
}
