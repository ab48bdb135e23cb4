//! `GET /v1/system`: the state of the whole host, for its operator.

use axum::Json;
use gristmill_core::time::Timestamp;
use gristmill_wire::management::{Disk, SandboxBytes, Sandboxes, System, Webhooks};

use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, ReadMetrics};
use crate::openapi::tag;

/// The load, the disk and the settings of the host.
#[utoipa::path(
    get, path = "/system", operation_id = "GetSystem", tag = tag::HOST,
    responses((status = 200, description = "Its present state", body = System)),
)]
pub(crate) async fn get(
    Caller { state, .. }: Caller<ReadMetrics>,
) -> Result<Json<System>, ApiError> {
    let (counters, facts) = (state.control.host.counters(), state.facts.clone());
    let memory = counters.memory;
    let runners = state.control.host.runners();
    let elsewhere: u64 = runners.iter().map(|host| host.sandboxes).sum();
    let uptime = state.clock.elapsed().saturating_sub(state.started.elapsed);
    let backed_up = (counters.backed_up_at_ms > 0).then_some(counters.backed_up_at_ms);
    Ok(Json(System {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: rfc3339(state.started.at),
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        endpoints: counters.endpoints,
        jobs: counters.store.jobs,
        sandboxes: Sandboxes {
            running: counters.load.running,
            idle: counters.load.idle,
            waiting: counters.load.waiting,
            growing: memory.permits.growing,
            max: facts.sandboxes_max + elsewhere,
            memory: SandboxBytes {
                max_bytes: memory.permits.max,
                charged_bytes: memory.permits.taken,
                kept_bytes: memory.kept,
                withheld_bytes: memory.permits.withheld,
            },
        },
        disk: Disk {
            free_bytes: state.disk_space.free_bytes(),
            reserve_bytes: state.disk_space.reserve_bytes(),
        },
        journal_bytes: counters.store.checkpoint_backlog_bytes,
        webhooks: Webhooks {
            waiting: counters.store.waiting_webhooks,
            given_up: state.control.host.webhooks_given_up(),
        },
        lost_log_lines: counters.lost_log_lines,
        last_backup_at: backed_up.map(|ms| rfc3339(Timestamp::from_millis(ms))),
        settings: facts.settings,
    }))
}
