//! The handlers that an endpoint has run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::endpoint::{EndpointRetention, RateLimit, Reuse, ScalerType};
use crate::id::{EndpointId, TemplateId, VolumeId};
#[cfg(feature = "openapi")]
use crate::schema;
use crate::{HostPattern, Metering, whole_number};

/// A handler that an endpoint has run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The version of the endpoint that ran it first.
    pub version: u32,
    /// When the endpoint began to run it.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub released_at: String,
    /// The handler's name in the template.
    pub image: String,
    /// Of the component's bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Digest))]
    pub sha256: String,
}

/// A handler that an endpoint has run, with the settings with which it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseWithSettings {
    /// The release.
    #[serde(flatten)]
    pub release: Release,
    /// Absent for a release of a host that did not keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub settings: Option<ReleaseSettings>,
}

/// The settings of an endpoint at one time. Their fields are those of the endpoint, but for `env`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSettings {
    /// The template with its handler.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub template_id: TemplateId,
    /// Workers that are kept even when no job waits.
    pub workers_min: u32,
    /// Most workers at one time; 0: its jobs wait as if it were paused.
    pub workers_max: u32,
    /// Whether it ran no jobs for a while: they waited.
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
    #[serde(default)]
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
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::HostPattern>))]
    pub allowed_hosts: Vec<HostPattern>,
    /// Whether its handlers' requests and its webhooks carry the `traceparent` and `tracestate` of their job.
    #[serde(default)]
    pub propagate_traces: bool,
    /// The endpoints to which its handlers may submit jobs.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::EndpointId>))]
    pub call_endpoints: Vec<EndpointId>,
    /// By the name of a variable: a fingerprint of its value. The host keeps no old values, since they may be
    /// secrets. The first 64 variables have one.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Absent: no network volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub network_volume_id: Option<VolumeId>,
    /// Absent: derived from the timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub max_fuel: Option<u64>,
}

/// The target of a rollback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The `version` of a release; by default the release before the current one.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub version: Option<u64>,
    /// The `version` of the endpoint that the caller saw. The call is refused if the endpoint has another
    /// one. Without `version` and `from`, a repeated call returns to the handler that the first one replaced.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub from: Option<u64>,
}
