//! Every route on one screen, and what stands before them.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Request, Response};
use axum::middleware::{from_fn_with_state, map_response};
use axum::routing::{MethodRouter, get, post, put};
use axum::{Extension, Router};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::trace::TraceLayer;
use tracing::{Span, debug, debug_span};

use crate::error::{ApiError, ErrorCode};
use crate::queue::StreamShape;
use crate::rate_limit::Operation;
use crate::state::ApiState;
use crate::{front_door, management, metrics, paths, queue};

/// Both APIs.
pub fn router(state: ApiState) -> Router {
    let routes = Router::new()
        .nest("/v2", queue_api(&state, StreamShape::Array))
        .nest("/sdk/v2", queue_api(&state, StreamShape::Object))
        .nest("/v1", management_api())
        .route("/metrics", get(metrics::metrics))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(unknown_route)
        .layer(DefaultBodyLimit::disable()) // each route reads its body with its own limit
        .with_state(state);
    // Paths are made normal before any route looks at them.
    Router::new().fallback_service(
        ServiceBuilder::new()
            .layer(
                TraceLayer::new_for_http()
                    .make_span_with(|request: &Request<_>| {
                        debug_span!("http", method = %request.method(), path = request.uri().path())
                    })
                    .on_request(())
                    .on_response(|response: &Response<_>, took: Duration, _: &Span| {
                        let status = response.status().as_u16();
                        debug!(http.status = status, duration_us = took.as_micros(), "answered {status}");
                    })
                    .on_failure(()),
            )
            .layer(CatchPanicLayer::custom(panicked))
            .map_request(|mut request: Request<_>| {
                *request.uri_mut() = paths::normalize(std::mem::take(request.uri_mut()));
                request
            })
            .service(routes),
    )
}

fn queue_api(state: &ApiState, shape: StreamShape) -> Router<ApiState> {
    use Operation as On;
    use queue::routes;
    // Each route lies behind the front door, with the operation that its calls count as.
    let behind = |operation, route: MethodRouter<ApiState>| {
        route.route_layer(from_fn_with_state((state.clone(), operation), front_door::enter))
    };
    Router::new()
        .route("/{endpoint}/run", behind(On::Run, post(routes::run)))
        .route("/{endpoint}/runsync", behind(On::RunSync, post(routes::run_sync)))
        .route("/{endpoint}/status/{job}", behind(On::Status, read(routes::status)))
        .route("/{endpoint}/status-sync/{job}", behind(On::Status, read(routes::status_sync)))
        .route("/{endpoint}/stream/{job}", behind(On::Stream, read(routes::stream)))
        .route("/{endpoint}/cancel/{job}", behind(On::Cancel, post(routes::cancel)))
        .route("/{endpoint}/retry/{job}", behind(On::Retry, post(routes::retry)))
        .route("/{endpoint}/purge-queue", behind(On::PurgeQueue, post(routes::purge_queue)))
        .route("/{endpoint}/requests", behind(On::Requests, get(routes::requests)))
        .route("/{endpoint}/health", behind(On::Health, get(routes::health)))
        .layer(Extension(shape))
}

fn management_api() -> Router<ApiState> {
    use management::{endpoints, handlers, keys, templates, webhooks};
    Router::new()
        .route("/templates", get(templates::list).post(templates::create))
        .route(
            "/templates/{id}",
            get(templates::get).patch(templates::update).delete(templates::delete),
        )
        .route("/endpoints", get(endpoints::list).post(endpoints::create))
        .route(
            "/endpoints/{id}",
            get(endpoints::get).patch(endpoints::update).delete(endpoints::delete),
        )
        .route("/endpoints/{id}/rotate-webhook-secret", post(webhooks::rotate_secret))
        .route("/endpoints/{id}/deliveries", get(webhooks::deliveries))
        .route("/handlers", get(handlers::list))
        .route("/handlers/{reference}", put(handlers::upload))
        .route("/keys", get(keys::list).post(keys::create))
        .route("/keys/{id}", axum::routing::delete(keys::revoke))
        // Own fallbacks, so that their refusals have a `message` too.
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(unknown_management_route)
        .layer(map_response(ApiError::add_message))
}

/// Some clients POST what others GET.
fn read<H, T>(handler: H) -> MethodRouter<ApiState>
where
    H: axum::handler::Handler<T, ApiState>,
    T: 'static,
{
    get(handler.clone()).post(handler)
}

async fn unknown_route(State(state): State<ApiState>, request: Request<Body>) -> ApiError {
    let unknown = ApiError::not_found(format!("there is no route `{}`", request.uri().path()));
    state.strangers.admit(request.extensions()).err().unwrap_or(unknown)
}

/// Here the path has lost its prefix.
async fn unknown_management_route(
    State(state): State<ApiState>,
    request: Request<Body>,
) -> ApiError {
    let unknown = ApiError::not_found(format!("there is no route `/v1{}`", request.uri().path()));
    state.strangers.admit(request.extensions()).err().unwrap_or(unknown)
}

async fn method_not_allowed(method: axum::http::Method) -> ApiError {
    ApiError::new(
        ErrorCode::MethodNotAllowed,
        format!("the method {method} is not allowed here; see the Allow header"),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "the layer's signature")]
fn panicked(cause: Box<dyn std::any::Any + Send>) -> Response<Body> {
    use axum::response::IntoResponse as _;
    let message = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!("a request handler panicked: {message}");
    ApiError::new(ErrorCode::Internal, "internal error; the host's log has the details")
        .into_response()
}
