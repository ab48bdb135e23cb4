//! `GET /v1/cluster`: the hosts that share the jobs, for their operator.

use axum::Json;
use gristmill_core::runtime::RunnerHost;
use gristmill_core::sharing::cores::cores;
use gristmill_wire::management::{Cluster, ClusterHost, HostRole};

use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, ReadMetrics};
use crate::openapi::tag;

/// The hosts of the database, and the jobs that each of them runs; a host without one is alone.
#[utoipa::path(
    get, path = "/cluster", operation_id = "GetCluster", tag = tag::HOST,
    responses((status = 200, description = "The active host first", body = Cluster)),
)]
pub(crate) async fn get(Caller { state, .. }: Caller<ReadMetrics>) -> Json<Cluster> {
    let runners = state.control.host.runners();
    let own = state.control.host.counters().memory.permits;
    let active = ClusterHost {
        role: HostRole::Active,
        address: state.facts.cluster_address.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since: rfc3339(state.started.at),
        running: state.control.host.load().running,
        max_running: state.facts.sandboxes_max,
        memory_bytes: own.taken,
        max_memory_bytes: own.max,
        cores: cores() as u64,
    };
    let standby = |host: RunnerHost| ClusterHost {
        role: HostRole::Standby,
        address: Some(host.address),
        version: host.version,
        since: rfc3339(host.since),
        running: host.running,
        max_running: host.sandboxes,
        memory_bytes: host.memory_bytes,
        max_memory_bytes: host.memory_bytes_max,
        cores: host.cores,
    };
    let hosts = [active].into_iter().chain(runners.into_iter().map(standby)).collect();
    Json(Cluster { hosts })
}
