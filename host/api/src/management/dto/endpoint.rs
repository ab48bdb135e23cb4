//! Endpoints.

use gristmill_core::deploy::endpoint::{self, Deployment};
use gristmill_json_schema::SchemaText;
use gristmill_wire::management::{ComputeType, Endpoint, EndpointWithSecret};

use crate::answer::wire_time::rfc3339;

/// The answer's form of an endpoint.
pub(crate) fn endpoint(endpoint: &endpoint::Endpoint) -> Endpoint {
    Endpoint {
        id: endpoint.id.clone(),
        user_id: endpoint.owner.clone(),
        name: endpoint.name.clone(),
        template_id: endpoint.template.clone(),
        template_is_deleted: endpoint.template_is_deleted,
        version: endpoint.version,
        created_at: rfc3339(endpoint.created_at),
        compute_type: ComputeType::Cpu,
        data_center_ids: Vec::new(),
        gpu_count: 0,
        gpu_type_ids: Vec::new(),
        allowed_cuda_versions: Vec::new(),
        instance_ids: Vec::new(),
        settings: endpoint.settings.clone(),
        network_volume_ids: endpoint.network_volume.iter().cloned().collect(),
        network_volume_id: endpoint.network_volume.clone(),
        input_schema: None,
        template: None,
        workers: None,
        ignored_fields: Vec::new(),
    }
}

/// The answer to a body of which these fields were ignored.
pub(crate) fn endpoint_of(of: &endpoint::Endpoint, ignored_fields: Vec<String>) -> Endpoint {
    Endpoint { ignored_fields, ..endpoint(of) }
}

/// The same with the schema of its handler's input.
pub(crate) fn deployed_endpoint(deployment: &Deployment) -> Endpoint {
    let input_schema = deployment.input_schema.as_ref().map(SchemaText::value);
    Endpoint { input_schema, ..endpoint(&deployment.endpoint) }
}

/// An endpoint with the secret of its webhooks.
pub(crate) fn endpoint_with_secret(
    with: &endpoint::Endpoint,
    ignored_fields: Vec<String>,
) -> EndpointWithSecret {
    let webhook_secret = with.webhook_secrets.current().reveal();
    EndpointWithSecret { endpoint: endpoint_of(with, ignored_fields), webhook_secret }
}
