//! Endpoints.

use std::collections::BTreeMap;

use gristmill_control::{EndpointPatch, NewEndpoint, RetentionPatch, ReusePatch, ScalerKind};
use gristmill_core::deploy::endpoint::{self, Deployment};
use gristmill_core::deploy::input_schema::SchemaText;
use gristmill_core::sharing::rate::OperationLimit;
use gristmill_wire::management::{
    ComputeType, Endpoint, EndpointInput, EndpointWithSecret, RateLimit, ReleaseSettings,
    ScalerType,
};

use crate::answer::wire_time::rfc3339;

/// The endpoint to create.
pub(crate) fn new_endpoint(mut input: EndpointInput) -> NewEndpoint {
    NewEndpoint { id: input.id.take(), properties: endpoint_patch(input) }
}

/// The fields to change.
pub(crate) fn endpoint_patch(input: EndpointInput) -> EndpointPatch {
    let limits = |limits: BTreeMap<String, RateLimit>| {
        limits.into_iter().map(|(operation, limit)| (operation, operation_limit(limit))).collect()
    };
    EndpointPatch {
        name: input.name,
        template: input.template_id,
        workers_min: input.workers_min,
        workers_max: input.workers_max,
        paused: input.paused,
        idle_timeout_s: input.idle_timeout,
        scaler: input.scaler_type.map(scaler_kind),
        scaler_value: input.scaler_value,
        waiting_jobs_max: input.max_waiting_jobs,
        rate_limits: input.rate_limits.map(limits),
        execution_timeout_ms: input.execution_timeout_ms,
        retention: input.retention.map(|given| RetentionPatch {
            completed_ms: given.completed,
            failed_ms: given.failed,
            cancelled_ms: given.cancelled,
            jobs_max: given.max_jobs,
            mib_max: given.max_mib,
        }),
        memory_mib: input.memory_mib,
        fuel_max: input.max_fuel,
        metering: input.metering,
        reuse: input
            .reuse
            .map(|given| ReusePatch { jobs_max: given.max_jobs, idle_s: given.max_idle }),
        allowed_hosts: input.allowed_hosts,
        propagates_traces: input.propagate_traces,
        call_endpoints: input.call_endpoints,
        env: input.env,
        network_volume: input.network_volume_id,
        network_volumes: input.network_volume_ids,
    }
}

fn scaler_kind(kind: ScalerType) -> ScalerKind {
    match kind {
        ScalerType::QueueDelay => ScalerKind::QueueDelay,
        ScalerType::RequestCount => ScalerKind::RequestCount,
    }
}

fn operation_limit(limit: RateLimit) -> OperationLimit {
    let RateLimit { calls_per_10s, concurrent, calls_per_worker } = limit;
    OperationLimit { calls_per_10s, concurrent, calls_per_worker }
}

/// The answer's form of an endpoint.
pub(crate) fn endpoint(endpoint: &endpoint::Endpoint) -> Endpoint {
    let ReleaseSettings {
        template_id,
        workers_min,
        workers_max,
        paused,
        idle_timeout,
        scaler_type,
        scaler_value,
        max_waiting_jobs,
        rate_limits,
        execution_timeout_ms,
        retention,
        memory_mib,
        metering,
        reuse,
        allowed_hosts,
        propagate_traces,
        call_endpoints,
        env,
        network_volume_id,
        max_fuel,
    } = endpoint.settings_with(endpoint.env.clone());
    Endpoint {
        id: endpoint.id.clone(),
        user_id: endpoint.owner.clone(),
        name: endpoint.name.clone(),
        template_id,
        template_is_deleted: endpoint.template_is_deleted,
        version: endpoint.version,
        created_at: rfc3339(endpoint.created_at),
        compute_type: ComputeType::Cpu,
        data_center_ids: Vec::new(),
        gpu_count: 0,
        gpu_type_ids: Vec::new(),
        allowed_cuda_versions: Vec::new(),
        instance_ids: Vec::new(),
        workers_min,
        workers_max,
        paused,
        idle_timeout,
        scaler_type,
        scaler_value,
        max_waiting_jobs,
        rate_limits,
        execution_timeout_ms,
        retention,
        memory_mib,
        metering,
        reuse,
        allowed_hosts,
        propagate_traces,
        call_endpoints,
        env,
        network_volume_ids: network_volume_id.iter().cloned().collect(),
        network_volume_id,
        max_fuel,
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
