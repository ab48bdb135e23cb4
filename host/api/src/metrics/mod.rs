//! `GET /metrics`: the host's counters in the OpenMetrics text format, which Prometheus reads. They
//! cover all owners, so only the operator's keys may read them, with the scope `metrics` or
//! `manage`. A [listener of its own](private_routes) serves the same text without a key.
//!
//! `prometheus-client` writes the text: it escapes, and adds the endings of units and counters. The
//! host's values are read when a collector calls, and those of endpoints are plain numbers
//! ([`endpoint_metrics`](gristmill_core::metrics::endpoint)), so metrics cost a job some ten
//! additions.
//!
//! A host that stands by has no jobs and endpoints: its own listener serves the values of
//! [its machine](of_machine) alone ([`StandbyMetrics`]).
//!
//! **Bounds.** About 90 lines for each of the endpoints with their own name, by default 200; see
//! [`MetricSeries`](gristmill_control::MetricSeries). **Cost.** Some microseconds for each
//! endpoint, and 25 for each one with its own name, on another thread than those that serve calls.

mod encode;
mod endpoints;

use std::fmt;
use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::extract::State;
use axum::http::{Request, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use gristmill_control::HostCounters;
use gristmill_core::metrics::instruments::DurationTotals;
use gristmill_core::runtime::SandboxMemory;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::permits::PermitBytes;
use gristmill_core::trace::SpanCounts;
use gristmill_edge::CertificateExpiry;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::encode::{Labels, histogram};
use self::endpoints::Endpoints;
use crate::answer::browser_headers::with_security_headers;
use crate::answer::error::ApiError;
use crate::http_metrics::{RouteTotals, STATUSES};
use crate::identity::access;
use crate::identity::caller::{Caller, ReadMetrics};
use crate::limits::checks::apart;
use crate::openapi::tag;
use crate::request::head;
use crate::state::ApiState;

/// The type of the text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The counters of the host and its endpoints as OpenMetrics text.
#[utoipa::path(
    get, path = "/metrics", operation_id = "GetMetrics", tag = tag::HOST,
    responses((status = 200, description = "Counters, gauges and histograms", body = String, content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8")),
)]
pub(crate) async fn metrics(
    Caller { state, .. }: Caller<ReadMetrics>,
    unconfirmed: Option<Extension<Unconfirmed>>,
) -> Result<Response, ApiError> {
    answer(&state, unconfirmed.is_none()).await
}

/// An extension of a call for metrics: the host cannot reach its database, so that it takes no
/// other calls.
#[derive(Debug, Clone, Copy)]
pub struct Unconfirmed;

/// The route for a listener that only collectors reach: it needs no key.
pub(crate) fn private_routes() -> Router<ApiState> {
    Router::new().route("/metrics", get(private_metrics))
}

async fn private_metrics(
    State(state): State<ApiState>,
    unconfirmed: Option<Extension<Unconfirmed>>,
) -> Result<Response, ApiError> {
    answer(&state, unconfirmed.is_none()).await
}

/// One answer at a time is made: with 10,000 names it takes many megabytes, and on its own address
/// nothing else bounds the calls.
static TURN: Semaphore = Semaphore::const_new(1);

async fn answer(state: &ApiState, is_confirmed: bool) -> Result<Response, ApiError> {
    let is_active = is_confirmed && state.jobs.is_accepting();
    let turn = TURN.acquire().await;
    let (state, runtime) = (state.clone(), Handle::current());
    // 10,000 names take 300 ms, in which this thread would answer no other call.
    let text = apart(turn, move || {
        let host = &state.control.host;
        let counters = host.counters();
        let waiting_calls = state.jobs.waiting_calls();
        let certificate = state.certificate.seconds();
        let machine = of_machine(is_active, &state.disk_space, certificate);
        let mut registry = registry(machine, &counters, waiting_calls);
        registry.register_collector(Box::new(HostDurations {
            commit: counters.store.commit,
            compile: counters.compiles,
            routes: state.http.totals(),
        }));
        registry.register_collector(Box::new(Spans(state.tracer.counts())));
        registry.register_collector(Box::new(Endpoints(runtime.block_on(host.endpoints())?)));
        Ok(text(&registry))
    });
    Ok(in_open_metrics(text.await?))
}

fn in_open_metrics(text: String) -> Response {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

/// The values of the machine with the present values of the whole host. The encoder adds the
/// ending `_total` to the name of a counter.
fn registry(mut registry: Registry, counters: &HostCounters, waiting_calls: u64) -> Registry {
    let HostCounters {
        store, lost_log_lines, load, memory, endpoints, hosts, backed_up_at_ms, ..
    } = counters;
    let mut counter = |name, help, value: u64| {
        registry.register(name, help, ConstCounter::new(value));
    };
    counter("store_commits", "Store transactions, one fsync each", store.commits);
    counter("store_operations", "Changes in those transactions", store.operations);
    counter(
        "log_lines_lost",
        "Handlers' log lines that could not be written to the disk",
        *lost_log_lines,
    );
    let mut gauge = |name, help, value: u64| {
        registry.register(name, help, ConstGauge::new(value));
    };
    gauge("jobs", "Jobs that exist", store.jobs);
    gauge("jobs_archived", "Ended jobs that are only on disk", store.archived_jobs);
    gauge("calls_waiting", "Calls that wait for a change of a job", waiting_calls);
    gauge("webhooks_waiting", "Webhooks that are still to be sent", store.waiting_webhooks);
    gauge(
        "store_checkpoint_backlog_bytes",
        "Bytes that are to be copied from the journal to the tables, at most",
        store.checkpoint_backlog_bytes,
    );
    gauge("endpoints", "Endpoints that exist", *endpoints);
    gauge(
        "last_backup_timestamp_seconds",
        "When the last backup was complete, in seconds since 1970; 0 before the first one of this process",
        backed_up_at_ms / 1_000,
    );
    gauge("hosts", "Hosts that run jobs, this one included", *hosts);
    gauge("sandboxes_running", "Sandboxes that run a job", load.running);
    gauge("sandboxes_idle", "Idle instances that wait for their next job", load.idle);
    gauge("sandboxes_waiting", "Workers that wait for a sandbox", load.waiting);
    let SandboxMemory { permits: PermitBytes { max, taken, withheld, growing }, kept, .. } =
        *memory;
    gauge("sandboxes_growing", "Sandboxes that wait for more memory", growing);
    gauge("sandbox_memory_max_bytes", "Most memory of all sandboxes of this host", max);
    gauge("sandbox_memory_charged_bytes", "Memory that they are charged", taken);
    gauge(
        "sandbox_memory_kept_bytes",
        "Memory that ended sandboxes have left for the next ones",
        kept,
    );
    gauge(
        "sandbox_memory_withheld_bytes",
        "Memory that no sandbox gets, since the machine is short of it",
        withheld,
    );
    registry
}

/// The values that each host has of itself, whether it has the jobs or stands by. `is_active` is
/// the answer of `/readyz`, so that an alert sees a host that answers nothing but its metrics.
fn of_machine(is_active: bool, disk: &DiskSpaceGauge, certificate_expires_at_s: u64) -> Registry {
    let mut registry = Registry::with_prefix("gristmill");
    let mut gauge = |name, help, value: u64| {
        registry.register(name, help, ConstGauge::new(value));
    };
    gauge(
        "active",
        "1 on the host that has the jobs and takes calls, 0 on one that stands by, stops, or cannot reach its database",
        is_active.into(),
    );
    gauge("disk_free_bytes", "Free space of the data directory's file system", disk.free_bytes());
    gauge("disk_reserve_bytes", "Free space below which new work is refused", disk.reserve_bytes());
    gauge(
        "disk_free_inodes",
        "Free inodes of the data directory's file system; 0 where there is no fixed number",
        disk.free_inodes(),
    );
    gauge(
        "disk_reserve_inodes",
        "Free inodes below which new work is refused",
        disk.reserve_inodes(),
    );
    gauge(
        "certificate_expiry_timestamp_seconds",
        "When the TLS certificate expires, in seconds since 1970; 0 without TLS",
        certificate_expires_at_s,
    );
    registry
}

/// The metrics of a host that stands by, for its listener that only collectors reach.
#[derive(Debug, Clone)]
pub struct StandbyMetrics {
    /// The space of its data directory.
    pub disk_space: Arc<DiskSpaceGauge>,
    /// When its certificate expires.
    pub certificate: CertificateExpiry,
    /// Whether the listener has a loopback address, on which no call that may be a website's is
    /// answered.
    pub is_loopback: bool,
}

impl StandbyMetrics {
    /// The answer to a call; `None` for other paths.
    pub fn answer<B>(&self, call: &Request<B>) -> Option<Response> {
        if call.uri().path() != "/metrics" {
            return None;
        }
        let checked =
            head::check(call).and_then(|()| access::check_collector(self.is_loopback, call));
        let answer = match checked {
            Ok(()) => {
                let certificate = self.certificate.seconds();
                in_open_metrics(text(&of_machine(false, &self.disk_space, certificate)))
            }
            Err(refused) => refused.into_response(),
        };
        Some(with_security_headers(answer))
    }
}

/// The durations of the whole host, and the answers by route.
#[derive(Debug)]
struct HostDurations {
    commit: DurationTotals,
    compile: DurationTotals,
    routes: Vec<RouteTotals>,
}

impl Collector for HostDurations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let of_host = [
            ("store_commit", "Time of a store transaction, with its fsync", &self.commit),
            ("component_compile", "Time of the compile of a component", &self.compile),
        ];
        let none: Labels<'_> = &[];
        for (name, help, durations) in of_host {
            let (unit, kind) = (Some(&Unit::Seconds), MetricType::Histogram);
            histogram(&mut encoder.encode_descriptor(name, help, unit, kind)?, none, durations)?;
        }
        let help = "Answers by route and class of status";
        let mut answers =
            encoder.encode_descriptor("http_answers", help, None, MetricType::Counter)?;
        for route in &self.routes {
            for (status, count) in STATUSES.iter().zip(route.statuses) {
                let labels: Labels<'_> = &[("route", &route.route), ("status", status)];
                let mut metric = answers.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let mut durations = encoder.encode_descriptor(
            "http_answer",
            "Time until the head of an answer",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for route in &self.routes {
            histogram(&mut durations, &[("route", &route.route)], &route.durations)?;
        }
        Ok(())
    }
}

/// The spans of sampled traces; no metric on a host that exports none.
#[derive(Debug)]
struct Spans(Option<SpanCounts>);

impl Collector for Spans {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(SpanCounts { exported, queue_full, refused, not_sent }) = self.0 else {
            return Ok(());
        };
        let results = [
            ("exported", exported),
            ("queue_full", queue_full),
            ("refused", refused),
            ("not_sent", not_sent),
        ];
        let help = "Spans of sampled traces";
        let mut spans = encoder.encode_descriptor("spans", help, None, MetricType::Counter)?;
        for (result, count) in results {
            let labels: Labels<'_> = &[("result", result)];
            spans.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests;
