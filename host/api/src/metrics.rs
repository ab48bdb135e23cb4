//! `GET /metrics`: the host's counters as Prometheus text. They cover all owners, so only the
//! operator's keys with the scope `manage` may read them.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use gristmill_core::key::Scope;

use crate::auth::ManagementCaller;
use crate::error::ApiError;
use crate::openapi::tag;
use crate::state::ApiState;

/// The host's counters as Prometheus text.
#[utoipa::path(
    get, path = "/metrics", operation_id = "GetMetrics", tag = tag::HOST,
    responses((status = 200, description = "Counters and gauges", body = String, content_type = "text/plain; version=0.0.4")),
)]
pub(crate) async fn metrics(
    State(state): State<ApiState>,
    caller: ManagementCaller,
) -> Result<impl IntoResponse, ApiError> {
    caller.require_of_operator(Scope::Manage)?;
    let store = state.store.stats();
    let load = state.runtime.load();
    let endpoints = state.catalog.view().deployments.len() as u64;
    let rows = [
        (
            "gristmill_store_commits_total",
            "counter",
            "Store transactions, one fsync each",
            store.commits,
        ),
        (
            "gristmill_store_operations_total",
            "counter",
            "Changes in those transactions",
            store.operations,
        ),
        ("gristmill_jobs", "gauge", "Jobs that exist", store.jobs),
        (
            "gristmill_disk_free_bytes",
            "gauge",
            "Free space of the data directory's file system",
            state.disk_space.free_bytes(),
        ),
        (
            "gristmill_disk_reserve_bytes",
            "gauge",
            "Free space below which new work is refused",
            state.disk_space.reserve_bytes(),
        ),
        (
            "gristmill_disk_free_inodes",
            "gauge",
            "Free inodes of the data directory's file system; 0 where there is no fixed number",
            state.disk_space.free_inodes(),
        ),
        (
            "gristmill_disk_reserve_inodes",
            "gauge",
            "Free inodes below which new work is refused",
            state.disk_space.reserve_inodes(),
        ),
        ("gristmill_endpoints", "gauge", "Endpoints that exist", endpoints),
        ("gristmill_sandboxes_running", "gauge", "Sandboxes that run a job", load.running),
        (
            "gristmill_sandboxes_idle",
            "gauge",
            "Idle instances that wait for their next job",
            load.idle,
        ),
        ("gristmill_sandboxes_waiting", "gauge", "Workers that wait for a sandbox", load.waiting),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}
