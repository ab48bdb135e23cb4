//! Endpoints.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::compute_type::ComputeType;
use super::pod::Pod;
use super::start_limits::{KeyLimits, KeyLimitsInput, StartRate, StartRateInput};
use super::template::Template;
use crate::bounds::{
    self, ALLOWED_HOSTS_MAX, Bounds, CALL_ENDPOINTS_MAX, CORS_LIST_MAX, CORS_ORIGIN_BYTES_MAX,
    HEADER_NAME_BYTES_MAX, HTTP_HOSTS_MAX, RATE_LIMITED_OPERATIONS,
};
use crate::id::{EndpointId, OwnerId, TemplateId, VolumeId};
use crate::json_object::only_objects;
#[cfg(feature = "openapi")]
use crate::schema;
use crate::settings::{InvalidField, at_most, check_count, check_env, is_domain, number, settings};
use crate::words::words;
use crate::{HostPattern, Metering, Retry, RetryInput, whole_number};

settings! {
    /// The settings of an endpoint.
    pub struct EndpointSettings;

    /// An endpoint to create, or the fields of one to change.
    pub struct EndpointInput {
        /// Allowed only for a new endpoint; a random id by default. Not `serverless`, `templates`,
        /// `network-volumes`, `registries`, `billing`, `catalog`, `pods`, `clusters`, `account` or
        /// `_others`.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::EndpointId>))]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub id: Option<EndpointId>,
        /// What it handles; `QUEUE` by default. It cannot be changed later.
        #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(nullable = false))]
        pub kind: Option<EndpointType>,
        /// A display name; by default the id.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// The template with its handler: one of the owner, a public one or one of the platform.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub template_id: Option<TemplateId>,
        /// The network volume of its handlers, one of the owner; an empty string removes it.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::OptionalId>))]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub network_volume_id: Option<String>,
        /// The same as a list with its id, or empty. If both fields are given and differ, the one
        /// that changes the endpoint counts; if both would change it, the call is refused.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::NetworkVolumes>))]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub network_volume_ids: Option<Vec<String>>,
    }

    numbers {
        /// Workers that are kept even when no job waits; at most `workersMax`, which lowers it when
        /// it is set below. Each has a sandbox reserved. All endpoints together reserve at most
        /// half of `serve --max-running-jobs`, which owners share.
        workers_min: u32, WORKERS_MIN = Bounds { min: 0, default: 0, max: 1_000 };
        /// Most workers at one time, beside those whose jobs wait for called ones; 0: its jobs
        /// wait, as with `paused`, which keeps this number.
        // A worker costs nothing while it waits, and a sandbox starts in microseconds, so the
        // default is generous.
        workers_max: u32, WORKERS_MAX = Bounds { min: 0, default: 16, max: 1_000 };
        /// Seconds for which a worker beyond `workersMin` waits for work.
        idle_timeout: u32, IDLE_TIMEOUT_S = Bounds { min: 1, default: 5, max: 3_600 };
        /// Seconds with `QUEUE_DELAY`: a worker starts when the next waiting job has waited so
        /// long, and one more after each further such time. Jobs for each worker with
        /// `REQUEST_COUNT`.
        scaler_value: u32, SCALER_VALUE = Bounds { min: 1, default: 1, max: 3_600 };
        /// Milliseconds for one attempt of a job whose submission chooses none.
        execution_timeout_ms: u64, EXECUTION_TIMEOUT_MS = bounds::EXECUTION_TIMEOUT_MS;
        /// Memory of one attempt, in MiB.
        memory_mib: u64, MEMORY_MIB = Bounds { min: 1, default: 256, max: 4_096 };
    }

    optional {
        /// Most jobs that may wait; further submissions and retries are refused with `queue_full`.
        /// Absent: the host's limit.
        max_waiting_jobs: u32, WAITING_JOBS = Bounds::upto(10_000_000);
        /// Most instructions of one attempt; only with `metering` `fuel`. Absent: fuel is counted,
        /// and `executionTimeoutMs` ends the attempt.
        max_fuel: u64, FUEL = Bounds::upto(u64::MAX);
    }

    values {
        /// Whether it runs no jobs for now: they wait until this is false again. Its numbers of
        /// workers stay as they are.
        paused: bool = false;
        /// The rule for starting further workers.
        scaler_type: ScalerType = ScalerType::RequestCount;
        /// By operation. An operation that is not named has the host's limit.
        rate_limits: BTreeMap<String, RateLimit> as RateLimits = BTreeMap::new(), check_rate_limits;
        /// How a handler's computation is metered.
        metering: Metering as Metering = Metering::Fuel;
        /// Whether an attempt takes all of `memoryMib` when it begins, and keeps it to its end.
        /// Otherwise it takes what it needs, may wait for more, and goes back to the queue if the
        /// host has none.
        reserve_memory: bool = false;
        /// The hosts that its handlers may call. An address, or `!private` at the end, permits
        /// private addresses for the operator's endpoints, and for others only those of `serve
        /// --handler-allow`.
        allowed_hosts: Vec<HostPattern> as AllowedHosts = Vec::new(), at_most(ALLOWED_HOSTS_MAX);
        /// Whether its handlers' requests and its webhooks carry the `traceparent` and `tracestate`
        /// of their job.
        propagate_traces: bool = false;
        /// The ids of the owner's endpoints that its handlers may submit jobs to. They need not
        /// exist yet.
        call_endpoints: Vec<EndpointId> as CallEndpoints = Vec::new(), at_most(CALL_ENDPOINTS_MAX);
        /// The handler's environment; replaces variables of the template with the same name.
        env: BTreeMap<String, String> as Environment = BTreeMap::new(), check_env;
    }

    objects {
        /// How long its jobs are kept after their end. A submission can choose another time. By
        /// default 30 minutes for `run` and 1 minute for `runsync`, no longer than the ttl.
        retention: EndpointRetention, RetentionInput;
        /// How many jobs or requests an instance handles, one after the other: several ones for
        /// handlers with a costly start.
        reuse: Reuse, ReuseInput;
        /// When a job runs again after an attempt that failed. A submission can choose another
        /// rule.
        retry: Retry, RetryInput;
        /// How many of its jobs may start in some time, of all keys together. Further ones wait.
        throttle: StartRate, StartRateInput;
        /// What the jobs of each `policy.key` may do at most. Further ones wait, and hold up no
        /// other key.
        keys: KeyLimits, KeyLimitsInput;
        /// How HTTP requests are answered, on an endpoint of the type `LOAD_BALANCER`.
        http: HttpSettings, HttpInput;
    }
}

impl EndpointSettings {
    /// Changes the fields that are given. A lower `workers_max` also lowers `workers_min`.
    ///
    /// # Errors
    /// For the first field that an endpoint cannot have; the settings are useless then.
    pub fn change(&mut self, given: EndpointInput) -> Result<(), InvalidField> {
        let workers_max = given.workers_max.unwrap_or_else(|| self.workers_max.into());
        if let Some(workers) = given.workers_min.filter(|workers| *workers > workers_max) {
            let fault = format!("must be 0 to {workers_max}, which is `workersMax`, not {workers}");
            return Err(InvalidField::new("workersMin", fault));
        }
        self.take(given)?;
        self.workers_min = self.workers_min.min(self.workers_max);
        self.http.cors.check()?;
        check_fuel("maxFuel", self.max_fuel, self.metering)
    }
}

/// Refuses a bound of fuel with a metering that counts none; `field` is the name of the bound.
///
/// # Errors
/// With the remedies.
pub fn check_fuel(
    field: &str,
    max_fuel: Option<u64>,
    metering: Metering,
) -> Result<(), InvalidField> {
    if max_fuel.is_some() && metering == Metering::Epoch {
        let fault = "has no effect with the metering `epoch`, which counts no fuel; choose the metering `fuel`, \
            or no bound of fuel (0 for an endpoint that has one)";
        return Err(InvalidField::new(field, fault));
    }
    Ok(())
}

/// Checks that each operation has limits and that each permits calls: a limit of 0 would refuse
/// every call with the advice to try again later.
fn check_rate_limits(
    field: &str,
    limits: &BTreeMap<String, RateLimit>,
) -> Result<(), InvalidField> {
    const CALLS: Bounds = Bounds::upto(u32::MAX as u64);
    for (name, limit) in limits {
        if !RATE_LIMITED_OPERATIONS.contains(&name.as_str()) {
            let operations = RATE_LIMITED_OPERATIONS.join(", ");
            return Err(InvalidField::new(
                field,
                format!("has `{name}`; the operations are {operations}"),
            ));
        }
        let calls = limit.calls_per_10s.into();
        number::<u64>(&format!("{field}.{name}.callsPer10s"), calls, CALLS)?;
        if let Some(calls) = limit.concurrent {
            number::<u64>(&format!("{field}.{name}.concurrent"), calls.into(), CALLS)?;
        }
    }
    Ok(())
}

#[cfg(feature = "openapi")]
schema::variant! {
    /// An endpoint to create.
    NewEndpoint = EndpointInput, |object| schema::require(object, &["templateId"])
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
    /// What it handles.
    #[serde(rename = "type", default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub kind: EndpointType,
    /// A display name.
    pub name: String,
    /// The template with its handler.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub template_id: TemplateId,
    /// Whether that template, which was another owner's, was deleted: the endpoint needs another
    /// one. A template of a third owner with the same id does not count. Absent: it was not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub template_is_deleted: bool,
    /// Grows by one with each change of its settings, its template or the handler that the template
    /// names; the first version is 1. Of another owner's template only the changes count before or
    /// after which it was public or one of the platform.
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
    #[cfg_attr(feature = "openapi", schema(required))]
    pub gpu_count: u32,
    /// Always empty.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub gpu_type_ids: Vec<String>,
    /// Always empty.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub allowed_cuda_versions: Vec<String>,
    /// Always empty: all workers have the host's hardware.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub instance_ids: Vec<String>,
    /// Its settings.
    #[serde(flatten)]
    pub settings: EndpointSettings,
    /// Absent: no network volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub network_volume_id: Option<VolumeId>,
    /// The same as a list.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required, value_type = Vec<schema::Id>))]
    pub network_volume_ids: Vec<VolumeId>,
    /// The JSON Schema of its handler's input, by which the input of each new job is checked.
    /// Absent: the handler has none. Lists of endpoints leave it out.
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

words! {
    /// The condition for starting a further worker: a job has waited for `scalerValue` seconds, or
    /// there are more than `scalerValue` jobs for each worker.
    pub enum ScalerType {
        /// A job has waited for so many seconds.
        QueueDelay = "QUEUE_DELAY",
        /// There are more than so many jobs for each worker.
        RequestCount = "REQUEST_COUNT",
    }
}

words! {
    /// What an endpoint handles.
    #[derive(Default)]
    pub enum EndpointType {
        /// Jobs, which wait in a durable queue.
        #[default]
        Queue = "QUEUE",
        /// HTTP requests, which go straight to a worker.
        LoadBalancer = "LOAD_BALANCER",
    }
}

impl EndpointType {
    /// Whether it is the type of an endpoint whose creation names none.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

settings! {
    /// How HTTP requests are answered.
    pub struct HttpSettings;

    /// How HTTP requests are answered; a field that is left out keeps its value.
    pub struct HttpInput {}

    numbers {
        /// Milliseconds for which a request waits for a worker; then it is refused with 503.
        queue_timeout_ms: u64, QUEUE_TIMEOUT_MS = Bounds { min: 1, default: 30_000, max: 300_000 };
        /// Most MiB of the body of a request.
        max_request_mib: u32, REQUEST_MIB = Bounds { min: 1, default: 32, max: 4_096 };
    }
    optional {}
    values {
        /// Whether everybody may send requests, without a key. The handler then gets the header
        /// `Authorization` of a request, unless it has a key of the host.
        public: bool = false;
        /// Further host names of the endpoint at the address of `serve --http-listen`, such as
        /// `www.example.com`. The operator's keys give them, and each to one endpoint.
        hosts: Vec<String> as HostNames = Vec::new(), check_host_names;
    }
    objects {
        /// Which pages of other origins may read its answers.
        cors: CorsSettings, CorsInput;
    }
}

settings! {
    /// Which pages of other origins may send requests and read the answers (CORS), with all methods
    /// and headers. The host answers preflight requests, and replaces headers of the handler with
    /// the same names.
    pub struct CorsSettings;

    /// Which pages of other origins may read the answers; a field that is left out keeps its value.
    pub struct CorsInput {}

    numbers {
        /// Seconds for which a browser keeps the answer to a preflight request.
        max_age: u32, MAX_AGE_S = Bounds { min: 0, default: 600, max: 86_400 };
    }
    optional {}
    values {
        /// The origins, such as `https://example.com`, or `*` for all. Empty: none, and preflight
        /// requests go to the handler.
        origins: Vec<String> as CorsOrigins = Vec::new(), check_origins;
        /// Headers of answers that pages may read, beside the usual ones.
        expose_headers: Vec<String> as HeaderNames = Vec::new(), check_header_names;
        /// Whether requests of pages may have cookies and `Authorization`. Needs named origins.
        credentials: bool = false;
    }
    objects {}
}

impl CorsSettings {
    /// # Errors
    /// For credentials from everywhere, which browsers refuse.
    fn check(&self) -> Result<(), InvalidField> {
        if self.credentials && self.origins.iter().any(|origin| origin == ANY) {
            let fault = "needs named origins in `http.cors.origins`, not `*`";
            return Err(InvalidField::new("http.cors.credentials", fault));
        }
        Ok(())
    }
}

/// Checks names as a browser sends them.
fn check_host_names(field: &str, names: &[String]) -> Result<(), InvalidField> {
    check_count(field, names.len(), HTTP_HOSTS_MAX)?;
    let is_valid = |name: &String| is_domain(name) && *name == name.to_ascii_lowercase();
    match names.iter().find(|name| !is_valid(name)) {
        None => Ok(()),
        Some(name) => {
            let name = format!("{name:.99}");
            let fault = format!(
                "has `{}`; a host name is letters in lower case, digits, dashes and dots, without a port",
                name.escape_debug()
            );
            Err(InvalidField::new(field, fault))
        }
    }
}

/// Stands for all origins.
const ANY: &str = "*";

/// Checks origins as browsers send them.
fn check_origins(field: &str, origins: &[String]) -> Result<(), InvalidField> {
    check_count(field, origins.len(), CORS_LIST_MAX)?;
    let is_origin = |text: &str| {
        let name = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_of_name = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:[]".contains(&byte)
        };
        text.len() <= CORS_ORIGIN_BYTES_MAX
            && name.is_some_and(|name| !name.is_empty() && name.bytes().all(is_of_name))
    };
    match origins.iter().find(|origin| *origin != ANY && !is_origin(origin)) {
        None => Ok(()),
        Some(origin) => {
            let fault = format!(
                "has `{}`; an origin is `https://` or `http://` and a host in lower case, with a port if it is \
                 not the usual one, and without a path; `*` stands for all",
                format!("{origin:.99}").escape_debug(),
            );
            Err(InvalidField::new(field, fault))
        }
    }
}

/// Checks names of headers.
fn check_header_names(field: &str, names: &[String]) -> Result<(), InvalidField> {
    check_count(field, names.len(), CORS_LIST_MAX)?;
    let is_name = |text: &str| {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=HEADER_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_name)
    };
    match names.iter().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(name) => {
            let name = format!("{name:.99}");
            let fault = format!("has `{}`, which is no name of a header", name.escape_debug());
            Err(InvalidField::new(field, fault))
        }
    }
}

settings! {
    /// How long an endpoint's jobs are kept after their end. Absent: 30 minutes, or 1 minute for
    /// `runsync`, and no longer than the ttl.
    #[derive(Copy)]
    pub struct EndpointRetention;

    /// How long an endpoint's jobs are kept after their end; a field that is left out keeps its
    /// value.
    #[derive(Copy)]
    pub struct RetentionInput {}

    numbers {}
    optional {
        /// For jobs that complete, in milliseconds (up to 30 days), also beyond their ttl.
        completed: u64, COMPLETED_MS = bounds::RETENTION_MS;
        /// For jobs that fail or time out, in milliseconds.
        failed: u64, FAILED_MS = bounds::RETENTION_MS;
        /// For jobs that are cancelled, in milliseconds.
        cancelled: u64, CANCELLED_MS = bounds::RETENTION_MS;
        /// Most ended jobs. Beyond it the oldest ones are deleted before their retention is over,
        /// but none in the first 10 seconds after its end; the host checks once in a second.
        /// Absent: only the host's bounds, beyond which new jobs are refused.
        max_jobs: u64, JOBS = Bounds::upto(100_000_000);
        /// The same for the MiB of results, and of the inputs of failed jobs.
        max_mib: u64, MIB = Bounds::upto(16_777_216);
    }
    values {}
    objects {}
}

settings! {
    /// The bounds of an instance's reuse.
    #[derive(Copy)]
    pub struct Reuse;

    /// The bounds of an instance's reuse; a field that is left out keeps its value.
    #[derive(Copy)]
    pub struct ReuseInput {}

    numbers {
        /// Most jobs of one instance; 1: every job has its own instance.
        max_jobs: u32, JOBS = Bounds { min: 1, default: 1, max: 1_000_000 };
        /// Seconds for which an instance waits for its next job.
        max_idle: u32, IDLE_S = Bounds { min: 1, default: 60, max: 3_600 };
    }
    optional {}
    values {}
    objects {}
}

/// The rate limit of one operation, for each owner of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
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

only_objects!(RateLimit);

impl RateLimit {
    /// The time for which a limit names its calls.
    pub const WINDOW: Duration = Duration::from_secs(10);

    /// The calls in ten seconds that are allowed with `running_workers` running workers.
    pub fn effective(&self, running_workers: u64) -> u32 {
        let dynamic = running_workers.saturating_mul(self.calls_per_worker.into());
        self.calls_per_10s.max(u32::try_from(dynamic).unwrap_or(u32::MAX))
    }
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
#[path = "endpoint_tests.rs"]
mod tests;
