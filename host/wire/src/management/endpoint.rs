//! Endpoints.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::compute_type::ComputeType;
use super::pod::Pod;
use super::template::Template;
use crate::id::{EndpointId, OwnerId, TemplateId, VolumeId};
#[cfg(feature = "openapi")]
use crate::schema;
use crate::{HostPattern, Metering, json_object, whole_number};

/// An endpoint to create, or the fields of one to change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointInput {
    /// Allowed only for a new endpoint; a random id by default.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::EndpointId>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<EndpointId>,
    /// A display name; by default the id.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The template with its handler.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_id: Option<TemplateId>,
    /// Workers that are kept.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::WorkersMin>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub workers_min: Option<u64>,
    /// Most workers at one time.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::WorkersMax>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub workers_max: Option<u64>,
    /// Whether it runs no jobs for now. Its numbers of workers stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// In seconds.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::IdleTimeout>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub idle_timeout: Option<u64>,
    /// The rule for starting further workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaler_type: Option<ScalerType>,
    /// The number of the rule.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ScalerValue>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub scaler_value: Option<u64>,
    /// Most jobs that may wait.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::WaitingJobs>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_waiting_jobs: Option<u64>,
    /// By operation. An operation that is not named has the host's limit.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RateLimits>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limits: Option<BTreeMap<String, RateLimit>>,
    /// For submissions that choose none.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ExecutionTimeout>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub execution_timeout_ms: Option<u64>,
    /// How long its jobs are kept after their end. A submission can choose another time.
    #[serde(
        default,
        deserialize_with = "json_object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub retention: Option<RetentionInput>,
    /// Memory of one attempt.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::MemoryMib>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub memory_mib: Option<u64>,
    /// Most instructions of one attempt.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Fuel>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_fuel: Option<u64>,
    /// How the computation is metered.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Metering>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metering: Option<Metering>,
    /// Lets an instance handle several jobs, for handlers with a costly start.
    #[serde(
        default,
        deserialize_with = "json_object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub reuse: Option<ReuseInput>,
    /// The hosts that its handlers may call.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::AllowedHosts>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_hosts: Option<Vec<HostPattern>>,
    /// Adds the `traceparent` and `tracestate` of the job to its handler's requests and to its webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagate_traces: Option<bool>,
    /// The ids of the owner's endpoints that its handlers may submit jobs to.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::CallEndpoints>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_endpoints: Option<Vec<EndpointId>>,
    /// The handler's environment; replaces variables of the template with the same name.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Environment>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// The network volume of its handlers; an empty string removes it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::OptionalId>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_volume_id: Option<String>,
    /// The same as a list with its id, or empty.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::NetworkVolumes>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_volume_ids: Option<Vec<String>>,
}

#[cfg(feature = "openapi")]
schema::requiring! {
    /// An endpoint to create.
    NewEndpoint = EndpointInput, &["templateId"]
}

/// The answer's form of an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Part of its URLs.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::EndpointId))]
    pub id: EndpointId,
    /// Its owner.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub user_id: OwnerId,
    /// A display name.
    pub name: String,
    /// The template with its handler.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub template_id: TemplateId,
    /// Whether that template, which was another owner's, was deleted: the endpoint needs another one. A
    /// template of a third owner with the same id does not count. Absent: it was not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub template_is_deleted: bool,
    /// Grows by one with each change; the first version is 1.
    pub version: u32,
    /// When it was created.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub created_at: String,
    /// The hardware of its workers.
    pub compute_type: ComputeType,
    /// Always empty: there is only one data center.
    pub data_center_ids: Vec<String>,
    /// Always 0: handlers run on processors.
    #[serde(default)]
    pub gpu_count: u32,
    /// Always empty.
    #[serde(default)]
    pub gpu_type_ids: Vec<String>,
    /// Always empty.
    #[serde(default)]
    pub allowed_cuda_versions: Vec<String>,
    /// Always empty: all workers have the host's hardware.
    #[serde(default)]
    pub instance_ids: Vec<String>,
    /// Workers that are kept even when no job waits.
    pub workers_min: u32,
    /// Most workers at one time; 0: its jobs wait as if it were paused.
    pub workers_max: u32,
    /// Whether it runs no jobs for now: they wait until this is false again.
    #[serde(default)]
    pub paused: bool,
    /// Seconds for which a worker beyond `workersMin` waits for work.
    pub idle_timeout: u32,
    /// The rule for starting further workers.
    pub scaler_type: ScalerType,
    /// Seconds, or jobs for each worker.
    pub scaler_value: u32,
    /// Absent: the host's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub max_waiting_jobs: Option<u32>,
    /// By operation. An operation that is not named has the host's limit.
    pub rate_limits: BTreeMap<String, RateLimit>,
    /// For submissions that choose none, in milliseconds.
    pub execution_timeout_ms: u64,
    /// How long its jobs are kept after their end.
    pub retention: EndpointRetention,
    /// Memory of one attempt, in MiB.
    pub memory_mib: u64,
    /// How a handler's computation is metered.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Metering))]
    pub metering: Metering,
    /// How many jobs an instance handles.
    pub reuse: Reuse,
    /// The hosts that its handlers may call.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::HostPattern>))]
    pub allowed_hosts: Vec<HostPattern>,
    /// Whether its handlers' requests and its webhooks carry the `traceparent` and `tracestate` of their job.
    pub propagate_traces: bool,
    /// The ids of the owner's endpoints that its handlers may submit jobs to.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::EndpointId>))]
    pub call_endpoints: Vec<EndpointId>,
    /// The handler's environment; replaces variables of the template with the same name.
    pub env: BTreeMap<String, String>,
    /// Absent: no network volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub network_volume_id: Option<VolumeId>,
    /// The same as a list.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Id>))]
    pub network_volume_ids: Vec<VolumeId>,
    /// Absent: fuel is counted and not bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub max_fuel: Option<u64>,
    /// The JSON Schema of its handler's input, by which the input of each new job is checked. Absent: the
    /// handler has none. Lists of endpoints leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub input_schema: Option<serde_json::Value>,
    /// With `includeTemplate`: its template. Absent: it was deleted, or is no longer public.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Template, nullable = false))]
    pub template: Option<Box<Template>>,
    /// With `includeWorkers`: its workers, without those of `workersMin` that no job has needed
    /// yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub workers: Option<Vec<Pod>>,
    /// Fields of the body that requested a GPU and were ignored, because the host has the option
    /// `--ignore-gpu-fields`. Only in the answer to that body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_fields: Vec<String>,
}

/// The condition for starting a further worker: a job has waited for `scalerValue` seconds, or
/// there are more than `scalerValue` jobs for each worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ScalerType {
    /// A job has waited for so many seconds.
    QueueDelay,
    /// There are more than so many jobs for each worker.
    RequestCount,
}

/// How long an endpoint's jobs are kept after their end; a field that is left out keeps its value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetentionInput {
    /// For jobs that complete.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RetentionTimeInput>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub completed: Option<u64>,
    /// Also for jobs that time out.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RetentionTimeInput>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub failed: Option<u64>,
    /// For jobs that are cancelled.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RetentionTimeInput>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub cancelled: Option<u64>,
    /// Most ended jobs. Beyond it the oldest ones are deleted before their retention is over.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::HistoryJobsInput>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_jobs: Option<u64>,
    /// The same for the MiB of results, and of the inputs of failed jobs.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::HistoryMibInput>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_mib: Option<u64>,
}

/// How long an endpoint's jobs are kept after their end. Absent: 30 minutes, or 1 minute for
/// `runsync`, and no longer than the ttl.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointRetention {
    /// For jobs that complete, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::RetentionTime))]
    pub completed: Option<u64>,
    /// For jobs that fail or time out, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::RetentionTime))]
    pub failed: Option<u64>,
    /// For jobs that are cancelled, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::RetentionTime))]
    pub cancelled: Option<u64>,
    /// Most ended jobs; absent: no bound of the endpoint's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::HistoryJobs))]
    pub max_jobs: Option<u64>,
    /// Most MiB of their results, and of the inputs of failed jobs; absent: no bound of the endpoint's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::HistoryMib))]
    pub max_mib: Option<u64>,
}

/// The bounds of an instance's reuse; a field that is left out keeps its value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReuseInput {
    /// Most jobs of one instance.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ReuseJobs>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_jobs: Option<u64>,
    /// In seconds.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ReuseIdle>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_idle: Option<u64>,
}

/// The bounds of an instance's reuse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Reuse {
    /// Most jobs of one instance.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::ReuseJobs))]
    pub max_jobs: u32,
    /// Seconds for which an instance waits for its next job.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::ReuseIdle))]
    pub max_idle: u32,
}

/// The rate limit of one operation, for each owner of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateLimit {
    /// Calls at once, and then in ten seconds, evenly.
    #[serde(rename = "callsPer10s", deserialize_with = "whole_number::required")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, minimum = 1, maximum = 4_294_967_295_u64))]
    pub calls_per_10s: u32,
    /// Concurrent calls; absent: no limit.
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1, maximum = 4_294_967_295_u64))]
    pub concurrent: Option<u32>,
    /// Calls in ten seconds for each running worker; used if that gives more than
    /// `callsPer10s`.
    #[serde(default, deserialize_with = "whole_number::required")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64, maximum = 4_294_967_295_u64))]
    pub calls_per_worker: u32,
}

/// An endpoint with the secret of its webhooks: the answer when the endpoint is created, and when
/// the secret is rotated.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointWithSecret {
    /// The endpoint.
    #[serde(flatten)]
    pub endpoint: Endpoint,
    /// The secret that its webhooks are signed with.
    pub webhook_secret: String,
}

impl fmt::Debug for EndpointWithSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointWithSecret")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_has_only_the_given_fields() {
        let input = EndpointInput {
            template_id: Some(TemplateId::new("echo").unwrap()),
            workers_max: Some(4),
            metering: Some(Metering::Epoch),
            ..EndpointInput::default()
        };
        let text = serde_json::to_string(&input).unwrap();
        assert_eq!(text, r#"{"templateId":"echo","workersMax":4,"metering":"epoch"}"#);
        assert_eq!(serde_json::from_str::<EndpointInput>(&text).unwrap(), input);
    }
}
