//! Every route on one screen, and the steps before them.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::handler::Handler;
use axum::http::{Method, Request, Response};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::IntoResponse as _;
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use futures::FutureExt as _;
use gristmill_control::{Keys, complete};
use gristmill_core::access::key::Scope;
use gristmill_edge::CallOrigin;
use tower::Service as _;
use tracing::{Instrument as _, debug, debug_span};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

use crate::answer::browser_headers::with_security_headers;
use crate::answer::error::{ApiError, ErrorCode};
use crate::fallback;
use crate::http_endpoints::{self, Address, ByName, Door, Target};
use crate::http_metrics::HttpMetrics;
use crate::identity::admission::AdmissionLayer;
use crate::identity::caller::{Anyone, Guarded, scope_of};
use crate::identity::{access, answer_owner};
use crate::limits::rate_limit::Operation;
use crate::limits::unauthenticated;
use crate::openapi::{StreamShape, docs_page};
use crate::queue::dto;
use crate::request::known_query::KnownQuery;
use crate::request::{head, paths, query};
use crate::state::ApiState;
use crate::{console, management, metrics, openapi, probes, queue, registry};

/// A handler with the scope of its caller, and its document.
macro_rules! route {
    ($handler:path) => {
        (scope_of($handler), routes!($handler))
    };
}

type Route = (Scope, UtoipaMethodRouter<Guarded>);

/// Both APIs, and the document that describes them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Api {
    routes: Router,
    keys: Keys,
    http: Arc<HttpMetrics>,
    callers: Callers,
    /// Of a listener for clients.
    door: Option<Door>,
}

/// The callers of a listener.
#[derive(Debug, Clone, Copy)]
enum Callers {
    Clients,
    Collectors { is_loopback: bool },
}

impl Api {
    /// Combines the routes.
    pub fn new(state: ApiState) -> Self {
        let (routes, document) = OpenApiRouter::with_openapi(openapi::base())
            .merge(queue_api(&state, "/v2", StreamShape::Array))
            .merge(queue_api(&state, "/sdk/v2", StreamShape::Object))
            .nest("/v1", management_api(&state.compatibility.brand))
            .routes(behind_bearer(route!(metrics::metrics)))
            .merge(
                OpenApiRouter::new().routes(routes!(probes::live)).routes(routes!(probes::ready)),
            )
            .split_for_parts();
        let (keys, http) = (state.control.keys.clone(), state.http.clone());
        let door = Some(Door::new(state.clone()));
        http.name_routes(document.paths.paths.keys().map(String::as_str));
        let document = openapi::finish(document, &state.compatibility.brand);
        let document = get(openapi::get).layer(Extension(document));
        let routes = routes
            .merge(description(document.clone()))
            .merge(console::routes())
            .merge(registry::routes())
            .route("/openapi.json", document)
            .method_not_allowed_fallback(fallback::method_not_allowed)
            .fallback(unknown_route)
            .with_state(Guarded::new(state));
        Self { routes, keys, http, callers: Callers::Clients, door }
    }

    /// The routes of a listener that only collectors and supervisors reach: `/metrics`, `/livez`
    /// and `/readyz`, without keys. On a loopback address it answers no call that may be a
    /// website's.
    pub fn private(state: ApiState, is_loopback: bool) -> Self {
        let (keys, http) = (state.control.keys.clone(), state.http.clone());
        let routes = metrics::private_routes().merge(probes::private_routes());
        let routes = routes.fallback(|request: Request<Body>| async move {
            let path = request.uri().path();
            ApiError::not_found(format!("there is no route `{path}` on this address"))
                .into_response()
        });
        let callers = Callers::Collectors { is_loopback };
        Self { routes: routes.with_state(state), keys, http, callers, door: None }
    }

    /// Answers a call. Answers that may be counted have their [owner](gristmill_edge::AnswerOwner)
    /// among their extensions.
    ///
    /// Steps for every call are here and not in layers: each layer boxes its future, and is cloned
    /// with its whole content for each call.
    pub async fn answer<B>(self, request: Request<B>, origin: Arc<CallOrigin>) -> Response<Body>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let (http, begun) = (self.http, Instant::now());
        let route = http.route_of(request.uri().path());
        let door = self.door.filter(|_| Target::of(request.uri().path()).is_some());
        let is_by_name = door.is_some() && request.extensions().get::<ByName>().is_some();
        let address = if is_by_name { Address::Name } else { Address::Path };
        let query = request.uri().query().filter(|_| door.is_none());
        let refused = head::check(&request)
            .and_then(|()| query::check_utf8(query.unwrap_or_default()))
            .and_then(|()| match address {
                Address::Path => access::check(self.keys.access(), &request),
                // The door checks it, which knows the endpoint's settings.
                Address::Name => Ok(()),
            })
            .and_then(|()| match self.callers {
                Callers::Clients => Ok(()),
                Callers::Collectors { is_loopback } => {
                    access::check_collector(is_loopback, &request)
                }
            })
            .err();
        let answer = match door {
            // Boxed, so that the future of other calls stays small.
            Some(door) => door.answer(request, address, refused, origin).boxed().await,
            None => Self::make_answer(self.routes, self.keys, request, refused, origin).await,
        };
        http.record(route, answer.status(), begun.elapsed());
        answer
    }

    async fn make_answer<B>(
        mut routes: Router,
        keys: Keys,
        mut request: Request<B>,
        refused: Option<ApiError>,
        origin: Arc<CallOrigin>,
    ) -> Response<Body>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        if let Some(refused) = refused {
            origin.end_of_call(|key| keys.is_valid(key));
            let format = RefusalFormat::of(request.uri().path());
            return with_security_headers(format.refuse(refused).await);
        }
        let version = request.version();
        let (method, path) = (request.method(), request.uri().path());
        let span = debug_span!("http", %method, path);
        let started = (!span.is_disabled()).then(Instant::now);
        // Paths are normalised before any route sees them.
        paths::normalize(&mut request);
        let uri = request.uri().clone();
        request.extensions_mut().insert(origin.clone());
        let answering = AssertUnwindSafe(async { routes.call(request).await }).catch_unwind();
        let mut response = match answering.instrument(span.clone()).await {
            Ok(Ok(response)) => response,
            Err(cause) => {
                let refused = panicked(&*cause);
                RefusalFormat::of(uri.path()).refuse(refused).await
            }
        };
        if let Some(started) = started {
            let (status, took) = (response.status().as_u16(), started.elapsed());
            let _entered = span.enter();
            debug!(http.status = status, duration_us = took.as_micros(), "answered {status}");
        }
        origin.end_of_call(|key| keys.is_valid(key));
        answer_owner::record(&mut response, version, origin.owner());
        with_security_headers(response)
    }
}

/// The answer when there is no memory for the real one, because too many large answers wait for
/// their clients. It has the format of the path's API, and names the job of the call.
pub async fn response_over_budget(path: &str, answer: Response<Body>) -> Response<Body> {
    const SENTENCE: &str = "too many large answers are being read; try again shortly";
    let format = RefusalFormat::of(path);
    let job = answer.headers().get(&dto::JOB_ID).cloned();
    drop(answer);
    let mut refusal = format.refuse(ApiError::new(ErrorCode::Unavailable, SENTENCE)).await;
    if let Some(id) = job {
        refusal.headers_mut().insert(dto::JOB_ID, id);
    }
    if format == RefusalFormat::OpenAi {
        dto::add_request_id_header(&mut refusal);
    }
    with_security_headers(refusal)
}

/// The refusal of a call that the host cannot answer at present, in the format of the path's API.
pub async fn unavailable(path: &str, sentence: &str) -> Response<Body> {
    let refused = ApiError::new(ErrorCode::Unavailable, sentence);
    with_security_headers(RefusalFormat::of(path).refuse(refused).await)
}

/// The refusal of a call without a key whose address has made its `calls`, which is the limit.
/// After `wait` one is admitted.
pub async fn too_many_calls_without_key(path: &str, calls: u32, wait: Duration) -> Response<Body> {
    let refused = unauthenticated::too_many_calls(calls, wait);
    with_security_headers(RefusalFormat::of(path).refuse(refused).await)
}

/// The refusal of a call whose body could not be read, in the format of the path's API.
pub async fn unreadable_body(path: &str) -> Response<Body> {
    let refused = ApiError::bad_request("the body of the request is malformed, or has broken off");
    with_security_headers(RefusalFormat::of(path).refuse(refused).await)
}

/// The queue API below `prefix`. It is not nested, which would add two layers around each route.
fn queue_api(state: &ApiState, prefix: &str, shape: StreamShape) -> OpenApiRouter<Guarded> {
    use Operation as On;
    use queue::routes::{
        cancel, health, openai, purge_queue, requests, retry, run, run_sync, status, stream,
        timeline,
    };
    // Each route is behind the admission layer, with the operation that its calls count as.
    let behind = |operation, (scope, mut route): Route| {
        openapi::document_admission(&mut route.1, scope);
        openapi::rename_paths(&mut route.1, |path| format!("{prefix}{path}"));
        route.map(|route| route.route_layer(AdmissionLayer { state: state.clone(), operation }))
    };
    // SDKs may send more parameters to the contract's routes, which ignore them.
    let known = |(scope, route)| (scope, with_known_query(&state.compatibility.brand, route));
    let shaped =
        |(scope, route): Route| (scope, route.map(|route| route.route_layer(Extension(shape))));
    let mut router = OpenApiRouter::new()
        .routes(behind(On::Run, route!(run::run)))
        .routes(behind(On::RunSync, route!(run_sync::run_sync)))
        .routes(behind(On::Status, route!(status::status)))
        .routes(behind(On::StatusSync, route!(status::status_sync)))
        .routes(behind(On::Stream, shaped(route!(stream::stream))))
        .routes(behind(On::Cancel, route!(cancel::cancel)))
        .routes(behind(On::Retry, route!(retry::retry)))
        .routes(behind(On::PurgeQueue, route!(purge_queue::purge_queue)))
        .routes(behind(On::Requests, known(route!(requests::requests))))
        .routes(behind(On::Timeline, known(route!(timeline::timeline))))
        .routes(behind(On::Health, route!(health::health)))
        .merge(openai_api(behind(On::OpenAi, route!(openai::openai))));
    openapi::show_shape(router.get_openapi_mut(), shape);
    router
}

/// The routes for OpenAI clients; refusals have OpenAI's format.
fn openai_api(mut route: UtoipaMethodRouter<Guarded>) -> OpenApiRouter<Guarded> {
    openapi::in_openai_shape(&mut route.1);
    let (routes, document) = OpenApiRouter::new().routes(route).split_for_parts();
    let routes = routes
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .route_layer(map_response(queue::openai::reshape_refusal));
    described(routes, document)
}

/// Routes that refuse query parameters which their documentation does not have.
fn with_known_query(
    brand: &str,
    mut route: UtoipaMethodRouter<Guarded>,
) -> UtoipaMethodRouter<Guarded> {
    let known = KnownQuery::of(&route.1, brand);
    openapi::refuse_unknown_query(&mut route.1);
    route.map(|route| route.route_layer(Extension(known)))
}

fn management_api(brand: &str) -> OpenApiRouter<Guarded> {
    use management::{
        backup, billing, cluster, endpoints, events, handlers, http_requests, job_actions, jobs,
        keys, logs, pods, registry_auths, releases, schedules, secrets, series, system, templates,
        volume_files, volumes, webhooks,
    };
    let all = [
        route!(templates::list),
        route!(templates::create),
        route!(templates::get),
        route!(templates::update),
        route!(templates::delete),
        by_post(templates::update, route!(templates::update)),
        route!(endpoints::list),
        route!(endpoints::create),
        route!(endpoints::get),
        route!(endpoints::update),
        route!(endpoints::delete),
        by_post(endpoints::update, route!(endpoints::update)),
        route!(logs::read),
        route!(http_requests::list),
        route!(system::get),
        route!(cluster::get),
        route!(events::follow),
        route!(series::get),
        route!(series::list),
        route!(jobs::list),
        route!(job_actions::list),
        route!(job_actions::begin),
        route!(job_actions::get),
        route!(job_actions::abort),
        route!(releases::list),
        route!(releases::get),
        route!(releases::roll_back),
        route!(webhooks::rotate_secret),
        route!(webhooks::deliveries),
        route!(handlers::list),
        route!(handlers::get),
        route!(handlers::upload),
        route!(handlers::delete),
        route!(registry_auths::list),
        route!(registry_auths::create),
        route!(registry_auths::get),
        route!(registry_auths::delete),
        route!(volumes::list),
        route!(volumes::create),
        route!(volumes::get),
        route!(volumes::update),
        route!(volumes::delete),
        by_post(volumes::update, route!(volumes::update)),
        route!(volume_files::list),
        route!(volume_files::read),
        route!(volume_files::write),
        route!(volume_files::delete),
        route!(schedules::list),
        route!(schedules::create),
        route!(schedules::get),
        route!(schedules::update),
        route!(schedules::delete),
        by_post(schedules::update, route!(schedules::update)),
        route!(schedules::run),
        route!(keys::list),
        route!(keys::create),
        route!(keys::revoke),
        route!(billing::endpoints),
        route!(billing::pods),
        route!(billing::network_volumes),
        route!(pods::list),
        route!(backup::backup),
        route!(secrets::rotate),
    ];
    let all = all.map(|route| with_known_query(brand, behind_bearer(route)));
    let (routes, document) =
        all.into_iter().fold(OpenApiRouter::new(), OpenApiRouter::routes).split_for_parts();
    let routes = routes
        // Separate fallbacks, so that their refusals have a `message` too.
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .fallback(fallback::unknown_management_route)
        .layer(map_response(ApiError::add_message))
        .layer(from_fn(complete_changes));
    described(routes, document)
}

fn described(routes: Router<Guarded>, document: OpenApi) -> OpenApiRouter<Guarded> {
    let mut router = OpenApiRouter::from(routes);
    *router.get_openapi_mut() = document;
    router
}

/// The routes of the management API that need no key: its document, and the page that shows it.
fn description(document: MethodRouter<Guarded>) -> Router<Guarded> {
    docs_page::routes()
        .route("/v1/openapi.json", document)
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .route_layer(Extension(KnownQuery::default()))
        .route_layer(map_response(ApiError::add_message))
}

/// A change as `POST …/update`, for clients that cannot send PATCH. The handler and its
/// documentation are those of the PATCH.
fn by_post<H: Handler<T, Guarded>, T: 'static>(
    update: H,
    (scope, (schemas, mut paths, _)): Route,
) -> Route {
    openapi::document_by_post(&mut paths);
    (scope, (schemas, paths, post(update)))
}

/// Runs a management call that changes something to its end even when its client closes the
/// connection. Its operation is completed in any case; until then the call counts as concurrent, so
/// that a client that leaves has no more operations at one time than its limit. An upload changes
/// nothing before its component is compiled, so until then it ends with its connection.
async fn complete_changes(request: Request<Body>, next: Next) -> Response<Body> {
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::PUT) {
        return next.run(request).await;
    }
    let answer = complete(next.run(request)).await;
    answer.unwrap_or_else(|error| ApiError::from(error).into_response())
}

/// Documents that a route needs its caller's key as `Bearer KEY`.
fn behind_bearer((scope, mut route): Route) -> UtoipaMethodRouter<Guarded> {
    openapi::behind_bearer(&mut route.1, scope);
    route
}

/// The format of the refusals of one API. It is known from the path, and kept when the request is
/// not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusalFormat {
    /// The queue API, and every other path.
    Queue,
    /// The management API: with `message`.
    Management,
    /// An error object of OpenAI.
    OpenAi,
    /// The errors of a registry.
    Registry,
    /// In the place of a handler's answer.
    Http,
}

impl RefusalFormat {
    /// That of the path's API.
    fn of(path: &str) -> Self {
        if Target::of(path).is_some() {
            Self::Http
        } else if path.starts_with("/v1/") {
            Self::Management
        } else if path.contains("/openai/") {
            Self::OpenAi
        } else if registry::is_registry_path(path) {
            Self::Registry
        } else {
            Self::Queue
        }
    }

    /// The answer with a refusal.
    async fn refuse(self, refused: ApiError) -> Response<Body> {
        match self {
            Self::Queue => refused.into_response(),
            Self::Management => ApiError::add_message(refused.into_response()).await,
            Self::OpenAi => queue::openai::reshape_refusal(refused.into_response()).await,
            Self::Registry => registry::reshape_refusal(refused.into_response()).await,
            Self::Http => http_endpoints::refuse(refused),
        }
    }
}

async fn unknown_route(_: Anyone, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path();
    if registry::is_registry_path(path) {
        return registry::RegistryError::name_of_several_parts().into_response();
    }
    ApiError::not_found(format!("there is no route `{path}`")).into_response()
}

fn panicked(cause: &(dyn Any + Send)) -> ApiError {
    let message = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!("a request handler panicked: {message}");
    ApiError::new(ErrorCode::Internal, "internal error; the host's log has the details")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn refusals_without_a_request_have_the_format_of_their_path() {
        for (path, is_openai, has_message) in [
            ("/v2/e/run", false, false),
            ("/v2/openai", false, false),
            ("/v1/endpoints", false, true),
            ("/v2/e/openai/v1/models", true, false),
            ("/sdk/v2/e/openai/v1/models", true, false),
        ] {
            let format = RefusalFormat::of(path);
            let answer = ([(dto::JOB_ID, "j")], "large").into_response();
            let over_budget = response_over_budget(path, answer).await;
            assert_eq!(over_budget.headers().get(dto::JOB_ID).unwrap(), "j", "{path}");
            let request_id = over_budget.headers().get("x-request-id");
            assert_eq!(request_id.is_some(), is_openai, "{path}");
            let panicked = format.refuse(panicked(&"no message")).await;
            for (refusal, status) in [(over_budget, 503_u16), (panicked, 500)] {
                assert_eq!(refusal.status(), status, "{path}");
                let body = refusal.into_body().collect().await.unwrap().to_bytes();
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(body["error"].is_object(), is_openai, "{path}: {body}");
                assert_eq!(body["message"].is_string(), has_message, "{path}: {body}");
            }
        }
        let blobs = "/v2/a/b/blobs/sha256:0";
        assert_eq!(RefusalFormat::of(blobs), RefusalFormat::Registry);
        assert_eq!(RefusalFormat::of("/v2/tags"), RefusalFormat::Queue);
    }
}
