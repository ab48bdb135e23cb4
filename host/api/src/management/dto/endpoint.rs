//! Endpoints.

use std::collections::BTreeMap;

use gristmill_control::{EndpointPatch, RetentionPatch, ReusePatch, ScalerKind};
use gristmill_core::egress::{AllowedHosts, HostPattern};
use gristmill_core::endpoint::{self, Metering, Scaler};
use gristmill_core::id::{EndpointId, OwnerId, TemplateId, VolumeId};
use gristmill_core::rate::OperationLimit;
use gristmill_core::retention::ChosenRetention;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ComputeType, object, requiring};
use crate::openapi::schema;
use crate::whole_number;
use crate::wire_time::rfc3339;

/// An endpoint to create, or the fields of one to change.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointInput {
    /// Allowed only for a new endpoint; a random id by default.
    #[schema(value_type = Option<schema::EndpointId>)]
    pub(crate) id: Option<EndpointId>,
    #[schema(value_type = Option<schema::Name>)]
    pub(crate) name: Option<String>,
    /// The template with its handler.
    #[schema(value_type = Option<schema::Id>)]
    pub(crate) template_id: Option<TemplateId>,
    #[schema(value_type = Option<schema::WorkersMin>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) workers_min: Option<u64>,
    #[schema(value_type = Option<schema::WorkersMax>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) workers_max: Option<u64>,
    #[schema(value_type = Option<schema::IdleTimeout>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) idle_timeout: Option<u64>,
    pub(crate) scaler_type: Option<ScalerType>,
    #[schema(value_type = Option<schema::ScalerValue>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) scaler_value: Option<u64>,
    #[schema(value_type = Option<schema::WaitingJobs>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) max_waiting_jobs: Option<u64>,
    /// By operation. An operation that is not named has the host's limit.
    #[schema(value_type = Option<schema::RateLimits>)]
    pub(crate) rate_limits: Option<BTreeMap<String, RateLimit>>,
    #[schema(value_type = Option<schema::ExecutionTimeout>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) execution_timeout_ms: Option<u64>,
    /// How long its jobs are kept after their end. A submission can choose another time.
    #[serde(default, deserialize_with = "object")]
    pub(crate) retention: Option<RetentionInput>,
    #[schema(value_type = Option<schema::MemoryMib>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) memory_mib: Option<u64>,
    #[schema(value_type = Option<schema::Fuel>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) max_fuel: Option<u64>,
    #[schema(value_type = Option<schema::Metering>)]
    pub(crate) metering: Option<Metering>,
    /// Lets an instance handle several jobs, for handlers with a costly start.
    #[serde(default, deserialize_with = "object")]
    pub(crate) reuse: Option<ReuseInput>,
    /// The hosts that its handlers may call.
    #[schema(value_type = Option<schema::AllowedHosts>)]
    pub(crate) allowed_hosts: Option<Vec<HostPattern>>,
    /// The handler's environment; replaces variables of the template with the same name.
    #[schema(value_type = Option<schema::Environment>)]
    pub(crate) env: Option<BTreeMap<String, String>>,
    /// The network volume of its handlers; an empty string removes it.
    #[schema(value_type = Option<schema::OptionalId>)]
    pub(crate) network_volume_id: Option<String>,
}

requiring! {
    /// An endpoint to create.
    NewEndpoint = EndpointInput, &["templateId"]
}

/// The answer's form of an endpoint.
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
    /// Grows by one with each change; the first version is 1.
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
    /// Absent: the host's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u32)]
    max_waiting_jobs: Option<u32>,
    rate_limits: BTreeMap<String, RateLimit>,
    execution_timeout_ms: u64,
    retention: EndpointRetention,
    memory_mib: u64,
    #[schema(value_type = schema::Metering)]
    metering: Metering,
    reuse: Reuse,
    #[schema(value_type = Vec<schema::HostPattern>)]
    allowed_hosts: AllowedHosts,
    env: BTreeMap<String, String>,
    /// Absent: no network volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::Id)]
    network_volume_id: Option<VolumeId>,
    /// Absent: derived from the timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    max_fuel: Option<u64>,
}

/// The condition for starting a further worker: a job has waited for `scalerValue` seconds, or
/// there are more than `scalerValue` jobs for each worker.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ScalerType {
    QueueDelay,
    RequestCount,
}

/// How long an endpoint's jobs are kept after their end; a field that is left out keeps its value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RetentionInput {
    #[schema(value_type = Option<schema::RetentionTimeInput>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) completed: Option<u64>,
    /// Also for jobs that time out.
    #[schema(value_type = Option<schema::RetentionTimeInput>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) failed: Option<u64>,
    #[schema(value_type = Option<schema::RetentionTimeInput>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) cancelled: Option<u64>,
}

/// How long an endpoint's jobs are kept after their end. Absent: 30 minutes, or 1 minute for
/// `runsync`, and no longer than the ttl.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct EndpointRetention {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::RetentionTime)]
    completed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::RetentionTime)]
    failed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::RetentionTime)]
    cancelled: Option<u64>,
}

impl From<ChosenRetention> for EndpointRetention {
    fn from(chosen: ChosenRetention) -> Self {
        let ChosenRetention { completed_ms, failed_ms, cancelled_ms } = chosen;
        Self { completed: completed_ms, failed: failed_ms, cancelled: cancelled_ms }
    }
}

/// The bounds of an instance's reuse; a field that is left out keeps its value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReuseInput {
    #[schema(value_type = Option<schema::ReuseJobs>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) max_jobs: Option<u64>,
    #[schema(value_type = Option<schema::ReuseIdle>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) max_idle: Option<u64>,
}

/// The bounds of an instance's reuse.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Reuse {
    #[schema(value_type = schema::ReuseJobs)]
    max_jobs: u32,
    #[schema(value_type = schema::ReuseIdle)]
    max_idle: u32,
}

impl From<endpoint::Reuse> for Reuse {
    fn from(reuse: endpoint::Reuse) -> Self {
        Self { max_jobs: reuse.jobs_max, max_idle: reuse.idle_s }
    }
}

/// The rate limit of one operation, for each owner of keys.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RateLimit {
    /// Calls in any ten seconds.
    #[serde(rename = "callsPer10s", deserialize_with = "whole_number::required")]
    #[schema(value_type = u64, maximum = 4_294_967_295_u64)]
    calls_per_10s: u32,
    /// Concurrent calls; absent: no limit.
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    concurrent: Option<u32>,
    /// Calls in any ten seconds for each running worker; used if that gives more than
    /// `callsPer10s`.
    #[serde(default, deserialize_with = "whole_number::required")]
    #[schema(value_type = u64, maximum = 4_294_967_295_u64)]
    calls_per_worker: u32,
}

impl From<&OperationLimit> for RateLimit {
    fn from(limit: &OperationLimit) -> Self {
        let OperationLimit { calls_per_10s, concurrent, calls_per_worker } = *limit;
        Self { calls_per_10s, concurrent, calls_per_worker }
    }
}

impl From<RateLimit> for OperationLimit {
    fn from(limit: RateLimit) -> Self {
        let RateLimit { calls_per_10s, concurrent, calls_per_worker } = limit;
        Self { calls_per_10s, concurrent, calls_per_worker }
    }
}

impl From<EndpointInput> for gristmill_control::NewEndpoint {
    fn from(mut input: EndpointInput) -> Self {
        Self { id: input.id.take(), properties: input.into() }
    }
}

impl From<EndpointInput> for EndpointPatch {
    fn from(input: EndpointInput) -> Self {
        let limits = |limits: BTreeMap<String, RateLimit>| {
            limits.into_iter().map(|(operation, limit)| (operation, limit.into())).collect()
        };
        Self {
            name: input.name,
            template: input.template_id,
            workers_min: input.workers_min,
            workers_max: input.workers_max,
            idle_timeout_s: input.idle_timeout,
            scaler: input.scaler_type.map(Into::into),
            scaler_value: input.scaler_value,
            waiting_jobs_max: input.max_waiting_jobs,
            rate_limits: input.rate_limits.map(limits),
            execution_timeout_ms: input.execution_timeout_ms,
            retention: input.retention.map(|given| RetentionPatch {
                completed_ms: given.completed,
                failed_ms: given.failed,
                cancelled_ms: given.cancelled,
            }),
            memory_mib: input.memory_mib,
            fuel_max: input.max_fuel,
            metering: input.metering,
            reuse: input
                .reuse
                .map(|given| ReusePatch { jobs_max: given.max_jobs, idle_s: given.max_idle }),
            allowed_hosts: input.allowed_hosts,
            env: input.env,
            network_volume: input.network_volume_id,
        }
    }
}

impl From<ScalerType> for ScalerKind {
    fn from(kind: ScalerType) -> Self {
        match kind {
            ScalerType::QueueDelay => Self::QueueDelay,
            ScalerType::RequestCount => Self::RequestCount,
        }
    }
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
            scaler_type: match endpoint.scaling.scaler {
                Scaler::QueueDelay(_) => ScalerType::QueueDelay,
                Scaler::RequestCount(_) => ScalerType::RequestCount,
            },
            scaler_value: endpoint.scaling.scaler.value(),
            max_waiting_jobs: endpoint.waiting_jobs_max,
            rate_limits: endpoint
                .rate_limits
                .iter()
                .map(|(operation, limit)| (operation.clone(), limit.into()))
                .collect(),
            execution_timeout_ms: endpoint.execution_timeout_ms,
            retention: endpoint.retention.into(),
            memory_mib: endpoint.limits.memory_bytes_max >> 20,
            metering: endpoint.limits.metering,
            reuse: endpoint.reuse.into(),
            allowed_hosts: endpoint.allowed_hosts.clone(),
            env: endpoint.env.clone(),
            network_volume_id: endpoint.network_volume.clone(),
            max_fuel: endpoint.limits.fuel_max,
        }
    }
}

/// An endpoint with the secret of its webhooks: the answer when the endpoint is created, and when
/// the secret is rotated.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointWithSecret {
    #[serde(flatten)]
    endpoint: Endpoint,
    /// The secret that its webhooks are signed with.
    webhook_secret: String,
}

impl From<&endpoint::Endpoint> for EndpointWithSecret {
    fn from(endpoint: &endpoint::Endpoint) -> Self {
        let webhook_secret = endpoint.webhook_secrets.current().reveal();
        Self { endpoint: endpoint.into(), webhook_secret }
    }
}
