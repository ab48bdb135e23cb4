//! `GET /livez` and `GET /readyz`: probes for supervisors and load balancers, without a key. They
//! do not count for the limit of their address: behind a local proxy, other callers could make them
//! fail.
//!
//! `/livez` answers 200 as long as the process answers calls; a supervisor restarts it otherwise.
//! `/readyz` answers 503 from the moment when the host begins to stop, so that a load balancer
//! sends its calls elsewhere; also while another host is active, and while the database cannot be
//! reached. A host with a full disk is ready, since clients read their results there.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::get;

use crate::identity::caller::Probe;
use crate::openapi::tag;
use crate::state::ApiState;

/// Whether the process answers calls.
#[utoipa::path(
    get, path = "/livez", operation_id = "GetLiveness", tag = tag::HOST, security(()),
    responses((status = 200, description = "The host answers calls", body = String)),
)]
pub(crate) async fn live() -> &'static str {
    "live\n"
}

/// Whether the host takes jobs.
#[utoipa::path(
    get, path = "/readyz", operation_id = "GetReadiness", tag = tag::HOST, security(()),
    responses(
        (status = 200, description = "The host takes jobs", body = String),
        (
            status = 503, body = String,
            description = "The host is stopping, stands by for another host, or cannot reach its database"
        ),
    ),
)]
pub(crate) async fn ready(Probe { is_ready }: Probe) -> (StatusCode, &'static str) {
    readiness(is_ready)
}

/// The answer to a probe of a host that takes no jobs for this `reason`; `None` for other paths.
pub fn probe_without_jobs(path: &str, reason: &str) -> Option<Response<Body>> {
    match path {
        "/livez" => Some("live\n".into_response()),
        "/readyz" => Some((StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()),
        _ => None,
    }
}

/// The same routes for a listener that only collectors and supervisors reach.
pub(crate) fn private_routes() -> Router<ApiState> {
    let ready = async |State(state): State<ApiState>| readiness(state.jobs.is_accepting());
    Router::new().route("/livez", get(live)).route("/readyz", get(ready))
}

fn readiness(is_ready: bool) -> (StatusCode, &'static str) {
    match is_ready {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the host is stopping\n"),
    }
}
