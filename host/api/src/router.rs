//! Every route on one screen, and what stands before them.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Request, Response};
use axum::middleware::{from_fn_with_state, map_response};
use axum::routing::get;
use axum::{Extension, Router};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::trace::TraceLayer;
use tracing::{Span, debug, debug_span};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

use crate::error::{ApiError, ErrorCode};
use crate::queue::StreamShape;
use crate::rate_limit::Operation;
use crate::state::ApiState;
use crate::{auth, front_door, management, metrics, openapi, paths, queue};

/// Both APIs, and the document that describes them.
pub fn router(state: ApiState) -> Router {
    let (routes, document) = OpenApiRouter::with_openapi(openapi::base())
        .nest("/v2", queue_api(&state, StreamShape::Array))
        .nest("/sdk/v2", queue_api(&state, StreamShape::Object))
        .nest("/v1", management_api())
        .merge(behind_bearer(OpenApiRouter::new().routes(routes!(metrics::metrics))))
        .split_for_parts();
    let document = openapi::finish(document, &state.brand);
    let routes = routes
        .route("/openapi.json", get(openapi::get).layer(Extension(document)))
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

fn queue_api(state: &ApiState, shape: StreamShape) -> OpenApiRouter<ApiState> {
    use Operation as On;
    use queue::routes::{
        cancel, health, openai, purge_queue, requests, retry, run, run_sync, status, stream,
    };
    // Each route lies behind the front door, with the operation that its calls count as.
    let behind = |operation, mut route: UtoipaMethodRouter<ApiState>| {
        openapi::behind_front_door(&mut route.1);
        route.map(|route| {
            route.route_layer(from_fn_with_state((state.clone(), operation), front_door::enter))
        })
    };
    let mut router = OpenApiRouter::new()
        .routes(behind(On::Run, routes!(run::run)))
        .routes(behind(On::RunSync, routes!(run_sync::run_sync)))
        .routes(behind(On::Status, routes!(status::status)))
        .routes(behind(On::Status, routes!(status::status_sync)))
        .routes(behind(On::Stream, routes!(stream::stream)))
        .routes(behind(On::Cancel, routes!(cancel::cancel)))
        .routes(behind(On::Retry, routes!(retry::retry)))
        .routes(behind(On::PurgeQueue, routes!(purge_queue::purge_queue)))
        .routes(behind(On::Requests, routes!(requests::requests)))
        .routes(behind(On::Health, routes!(health::health)))
        .merge(openai_api(behind(On::OpenAi, routes!(openai::openai))))
        .layer(Extension(shape));
    openapi::show_shape(router.get_openapi_mut(), shape);
    router
}

/// What an OpenAI client calls; its refusals have the shape that such a client reads.
fn openai_api((_, mut paths, route): UtoipaMethodRouter<ApiState>) -> OpenApiRouter<ApiState> {
    let routes = Router::new()
        // Documented as one part of a path, which is all that a document can say.
        .route("/{endpoint}/openai/{*rest}", route)
        .method_not_allowed_fallback(method_not_allowed)
        .route_layer(map_response(queue::openai::reshape_refusal));
    openapi::in_openai_shape(&mut paths);
    let mut router = OpenApiRouter::from(routes);
    router.get_openapi_mut().paths = paths;
    router
}

fn management_api() -> OpenApiRouter<ApiState> {
    use management::{endpoints, handlers, keys, templates, webhooks};
    let (routes, document) = OpenApiRouter::new()
        .routes(routes!(templates::list, templates::create))
        .routes(routes!(templates::get, templates::update, templates::delete))
        .routes(routes!(endpoints::list, endpoints::create))
        .routes(routes!(endpoints::get, endpoints::update, endpoints::delete))
        .routes(routes!(webhooks::rotate_secret))
        .routes(routes!(webhooks::deliveries))
        .routes(routes!(handlers::list))
        .routes(routes!(handlers::upload))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .split_for_parts();
    let routes = routes
        // Own fallbacks, so that their refusals have a `message` too.
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(unknown_management_route)
        .layer(map_response(ApiError::add_message));
    let mut router = OpenApiRouter::from(routes);
    *router.get_openapi_mut() = document;
    behind_bearer(router)
}

/// Documents that all of these routes need the key as `Bearer KEY`.
fn behind_bearer(mut router: OpenApiRouter<ApiState>) -> OpenApiRouter<ApiState> {
    openapi::behind_bearer(&mut router.get_openapi_mut().paths);
    router
}

async fn unknown_route(State(state): State<ApiState>, request: Request<Body>) -> ApiError {
    let unknown = ApiError::not_found(format!("there is no route `{}`", request.uri().path()));
    auth::count_stranger(&request, &state).err().unwrap_or(unknown)
}

/// Here the path has lost its prefix.
async fn unknown_management_route(
    State(state): State<ApiState>,
    request: Request<Body>,
) -> ApiError {
    let unknown = ApiError::not_found(format!("there is no route `/v1{}`", request.uri().path()));
    auth::count_stranger(&request, &state).err().unwrap_or(unknown)
}

async fn method_not_allowed(State(state): State<ApiState>, request: Request<Body>) -> ApiError {
    let method = request.method();
    let sentence = format!("the method {method} is not allowed here; see the Allow header");
    let wrong = ApiError::new(ErrorCode::MethodNotAllowed, sentence);
    auth::count_stranger(&request, &state).err().unwrap_or(wrong)
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
