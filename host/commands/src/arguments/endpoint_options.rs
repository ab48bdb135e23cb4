//! The settings of an endpoint as options, for `deploy` and `endpoints`.

use clap::Args;
use gristmill_client::wire::bounds::EXECUTION_TIMEOUT_MS;
use gristmill_client::wire::id::EndpointId;
use gristmill_client::wire::management::{
    EndpointInput, EndpointSettings as Settings, Reuse, ReuseInput, ScalerType,
};
use gristmill_client::wire::{HostPattern, Metering};

use super::http_options::HttpOptions;
use super::parse::{self, bounded, given, help};
use super::retention::RetentionOptions;
use super::retry_options::RetryOptions;
use super::start_options::StartOptions;

/// The settings that are given.
#[derive(Debug, Args)]
#[command(next_help_heading = "Endpoint")]
pub struct EndpointOptions {
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(Settings::WORKERS_MIN),
        help = help("Workers that are kept even when no job waits", Settings::WORKERS_MIN))]
    workers_min: Option<u64>,
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(Settings::WORKERS_MAX),
        help = help("Most workers, each with one job at a time", Settings::WORKERS_MAX))]
    workers_max: Option<u64>,
    /// Lets the jobs of the endpoint wait, and keeps its numbers of workers [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    paused: Option<bool>,
    #[arg(long, value_name = "S", value_parser = bounded::<u64>(Settings::IDLE_TIMEOUT_S),
        help = help("Seconds for which an idle worker waits for a job", Settings::IDLE_TIMEOUT_S))]
    idle_timeout: Option<u64>,
    /// When to start a further worker: queue-delay:SECONDS, when a job has waited for so long, or
    /// request-count:JOBS, when there are more jobs for each worker [default: request-count:1].
    #[arg(long, value_name = "TYPE:N", value_parser = parse::scaler)]
    scaler: Option<(ScalerType, u64)>,
    /// Most jobs that may wait; 0 restores the host's bound [default: the host's bound].
    #[arg(long, value_name = "N")]
    max_waiting_jobs: Option<u64>,
    #[arg(long, value_name = "MS", value_parser = bounded::<u64>(EXECUTION_TIMEOUT_MS),
        help = help("How long a job may run unless its submission sets another time, in \
            milliseconds", EXECUTION_TIMEOUT_MS))]
    execution_timeout: Option<u64>,
    #[arg(long, value_name = "N", value_parser = bounded::<u64>(Settings::MEMORY_MIB),
        help = help("Memory of one job, in MiB", Settings::MEMORY_MIB))]
    memory_mib: Option<u64>,
    /// Most fuel of one job; 0 removes the bound [default: fuel is counted and not bounded].
    #[arg(long, value_name = "N")]
    max_fuel: Option<u64>,
    /// How computing is metered [default: fuel].
    #[arg(long, value_parser = parse::metering())]
    metering: Option<Metering>,
    #[arg(long, value_name = "JOBS", value_parser = bounded::<u64>(Reuse::JOBS),
        help = help("Most jobs of one instance of the handler, for handlers with a costly start: a \
            job finds the memory as the previous job left it", Reuse::JOBS))]
    reuse: Option<u64>,
    #[arg(long, value_name = "S", value_parser = bounded::<u64>(Reuse::IDLE_S),
        help = help("Seconds for which an instance waits for its next job", Reuse::IDLE_S))]
    reuse_idle: Option<u64>,
    /// A host that the handler may call, such as example.com or *.example.com:8443; may be
    /// repeated. Replaces all hosts of an earlier deploy.
    #[arg(long = "allow-host", value_name = "HOST")]
    allowed_hosts: Vec<HostPattern>,
    /// Takes all of the memory when an attempt begins, so that it never waits for more or goes back
    /// to the queue [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    reserve_memory: Option<bool>,
    /// Adds the traceparent of the job to the handler's requests and to the webhook [default:
    /// false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    propagate_traces: Option<bool>,
    /// An endpoint of the same owner that the handler may submit jobs to; may be repeated. Replaces
    /// all endpoints of an earlier deploy.
    #[arg(long = "call-endpoint", value_name = "ID")]
    call_endpoints: Vec<EndpointId>,
    /// The id of the network volume that the handler sees; an empty id removes it.
    #[arg(long, value_name = "ID")]
    volume: Option<String>,
    #[command(flatten)]
    http: HttpOptions,
    #[command(flatten)]
    retention: RetentionOptions,
    #[command(flatten)]
    retry: RetryOptions,
    #[command(flatten)]
    starts: StartOptions,
}

impl EndpointOptions {
    /// The fields that are given.
    pub fn document(self) -> EndpointInput {
        let (throttle, keys) = self.starts.documents();
        EndpointInput {
            workers_min: self.workers_min,
            workers_max: self.workers_max,
            paused: self.paused,
            idle_timeout: self.idle_timeout,
            scaler_type: self.scaler.map(|(kind, _)| kind),
            scaler_value: self.scaler.map(|(_, value)| value),
            max_waiting_jobs: self.max_waiting_jobs,
            execution_timeout_ms: self.execution_timeout,
            memory_mib: self.memory_mib,
            max_fuel: self.max_fuel,
            metering: self.metering,
            reuse: (self.reuse.is_some() || self.reuse_idle.is_some())
                .then_some(ReuseInput { max_jobs: self.reuse, max_idle: self.reuse_idle }),
            allowed_hosts: given(self.allowed_hosts),
            reserve_memory: self.reserve_memory,
            propagate_traces: self.propagate_traces,
            call_endpoints: given(self.call_endpoints),
            network_volume_id: self.volume,
            retry: self.retry.document(),
            throttle,
            keys,
            http: self.http.document(),
            retention: self.retention.document(),
            ..EndpointInput::default()
        }
    }
}
