//! The checks before every route of the queue API: the key, the endpoint, the rate limit and the
//! cap on concurrent calls, in this order. The body has not been read then. A call without an
//! endpoint or a permission [counts apart](crate::limits::rate_limit::RateLimiter::count_other).
//!
//! Limits count for each key owner, endpoint and operation, with a fair share for each key. A call
//! counts as concurrent until the client has read the last byte of its answer, or the connection is
//! closed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::Route;
use axum::routing::future::RouteFuture;
use bytes::Bytes;
use futures::FutureExt as _;
use gristmill_control::SessionId;
use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::deploy::endpoint::{Deployment, EndpointType};
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::metrics::endpoint::RefusedFor;
use gristmill_core::trace::{OpenSpan, TraceContext, TraceState};
use hyper::body::{Frame, SizeHint};
use tower::{Layer, Service};

use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::auth::{self, Form, Identity, KeyCheck};
use crate::limits::rate_limit::{ConcurrencyPermit, Operation};
use crate::request::body::ReadBody;
use crate::state::ApiState;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// An admitted call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The caller's key.
    pub(crate) key: Arc<ApiKey>,
    /// Its session of the console, if the key itself is not in the head.
    session: Option<SessionId>,
    /// The endpoint in the path.
    pub(crate) deployment: Arc<Deployment>,
    /// The scope that the key was found to have on the endpoint.
    pub(crate) scope: Scope,
    /// Its position in a distributed trace, for a call that submits a job.
    pub(crate) trace: Option<TraceContext>,
    /// The job in the path, if the text there is a job's id.
    job: Option<JobId>,
}

impl Call {
    /// The check of the caller for a call that outlasts its beginning.
    pub(crate) fn key_check(&self, state: &ApiState) -> KeyCheck {
        KeyCheck::new(state, &Identity { key: self.key.clone(), session: self.session })
    }

    /// Reads the body of the call, in the memory share of its key. A body may take minutes, so the
    /// caller is checked again after it.
    ///
    /// # Errors
    /// Those of [`BodyReader::read`](crate::request::body::BodyReader::read); 401 when the key or
    /// the session is no longer valid.
    pub(crate) async fn read_body(
        &self,
        state: &ApiState,
        head: &Parts,
        body: Body,
        bytes_max: usize,
    ) -> Result<ReadBody, ApiError> {
        let read = state.bodies.read(&self.key.id, head, body, bytes_max).await?;
        self.key_check(state).check()?;
        Ok(read)
    }

    /// The job in the path. Ids are opaque to clients, so a text that is not an id gives "not
    /// found".
    pub(crate) fn job(&self) -> Result<JobId, ApiError> {
        self.job.ok_or_else(ApiError::job_not_found)
    }
}

/// The layer before the routes of one operation. It has its own type, because `from_fn` boxes its
/// future and clones the route once more: 1 us for each call.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionLayer {
    pub(crate) state: ApiState,
    pub(crate) operation: Operation,
}

impl AdmissionLayer {
    /// Admits a call: adds the [`Call`] to the request, and may count it as concurrent.
    fn admit(&self, request: Request) -> Result<Admission, ApiError> {
        let Self { state, operation } = self;
        let (mut parts, body) = request.into_parts();
        let Identity { key, session } = auth::identify(&parts, state, Form::BearerOrBare)?;
        let found = self.find(&mut parts, &key).or_else(|refused| {
            state.limiter.count_other(&key)?;
            Err(refused)
        });
        let Found { deployment, scope, job } = found?;
        let running = || state.control.endpoints.running_workers(&deployment.endpoint.id);
        let permit = state.limiter.admit(&key, &deployment.endpoint, *operation, running);
        let permit = permit.inspect_err(|refusal| {
            if let Some(why) = refused_submission(*operation, refusal.code()) {
                deployment.incarnation.metrics().refused(why);
            }
        })?;
        let (trace, span) = match submits(*operation) {
            true => state.tracer.receive(caller_trace(&parts.headers)),
            false => (None, None),
        };
        let endpoint = || deployment.endpoint.id.clone();
        let span = span.map(|span| CallSpan { span, operation: *operation, endpoint: endpoint() });
        parts.extensions.insert(Call { key, session, deployment, scope, trace, job });
        Ok(Admission { request: Request::from_parts(parts, body), permit, span })
    }

    /// The endpoint in the path, if it exists for the key and the key may call the operation on it.
    fn find(&self, parts: &mut Parts, key: &ApiKey) -> Result<Found, ApiError> {
        let path = RawPathParams::from_request_parts(parts, &()).now_or_never();
        let path = path.and_then(Result::ok);
        let path = path.ok_or_else(|| ApiError::not_found("the path is not UTF-8"))?;
        let part = |wanted| path.iter().find_map(|(name, value)| (name == wanted).then_some(value));
        let text = part("endpoint").unwrap_or_default();
        let not_found = || ApiError::not_found(format!("endpoint `{text}` not found"));
        let id = EndpointId::new(text).map_err(|_| not_found())?;
        let scope = self.operation.scope();
        auth::require(key, scope, Some(&id))?;
        // Another owner's endpoint does not exist for this key.
        let deployment = self.state.control.endpoints.deployment(key, &id);
        let deployment = deployment.ok_or_else(not_found)?;
        // Requests that are answered later are jobs, which are submitted otherwise.
        if deployment.endpoint.kind == EndpointType::LoadBalancer && submits(self.operation) {
            return Err(ApiError::bad_request("not allowed for QB API"));
        }
        let job = part("job").and_then(|text| text.parse().ok());
        Ok(Found { deployment, scope, job })
    }
}

/// The target of a call.
struct Found {
    deployment: Arc<Deployment>,
    /// The scope that the key has on it.
    scope: Scope,
    /// The job in the path, if the text there is a job's id.
    job: Option<JobId>,
}

/// A request with the call, and the parts that end with its answer.
struct Admission {
    request: Request,
    permit: Option<ConcurrencyPermit>,
    span: Option<CallSpan>,
}

/// The span of a submission in a sampled trace. It ends with the head of the answer; without an
/// answer it is not recorded.
struct CallSpan {
    span: OpenSpan,
    operation: Operation,
    endpoint: EndpointId,
}

impl CallSpan {
    fn end(self, response: &Response) {
        let Self { span, operation, endpoint } = self;
        let status = response.status();
        let route = format!("/v2/{{endpoint}}/{}", operation.as_str());
        let attributes = vec![
            ("http.request.method", "POST".into()),
            ("http.route", route.as_str().into()),
            ("http.response.status_code", status.as_u16().into()),
            ("messaging.system", "gristmill".into()),
            ("messaging.destination.name", endpoint.as_str().into()),
        ];
        let error = status.is_server_error().then(|| status.to_string());
        span.end(format!("POST {route}"), attributes, error);
    }
}

/// Whether a call of the operation submits a job.
fn submits(operation: Operation) -> bool {
    matches!(operation, Operation::Run | Operation::RunSync | Operation::OpenAi)
}

/// The caller's position in a trace. An invalid header is ignored, as the standard wants, and so
/// are several. An invalid `tracestate` does not affect the `traceparent`, and without a
/// `traceparent` it has no meaning.
pub(crate) fn caller_trace(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let context = TraceContext::from_header(value.to_str().ok()?)?;
    let states: Result<Vec<_>, _> =
        headers.get_all("tracestate").iter().map(HeaderValue::to_str).collect();
    Some(TraceContext { state: TraceState::from_headers(states.unwrap_or_default()), ..context })
}

/// Why a submission was refused; `None` for a call that submits no job.
fn refused_submission(operation: Operation, code: ErrorCode) -> Option<RefusedFor> {
    let why = match code {
        ErrorCode::RateLimited => RefusedFor::RateLimited,
        ErrorCode::ConcurrencyLimited => RefusedFor::ConcurrencyLimited,
        _ => return None,
    };
    submits(operation).then_some(why)
}

impl Layer<Route> for AdmissionLayer {
    type Service = AdmissionService;

    fn layer(&self, route: Route) -> AdmissionService {
        AdmissionService { layer: self.clone(), route }
    }
}

/// A route behind the layer.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionService {
    layer: AdmissionLayer,
    route: Route,
}

impl Service<Request> for AdmissionService {
    type Response = Response;
    type Error = Infallible;
    type Future = AdmissionFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(())) // as a route always is
    }

    fn call(&mut self, request: Request) -> AdmissionFuture {
        match self.layer.admit(request) {
            Ok(Admission { request, permit, span }) => {
                AdmissionFuture { answer: Ok(self.route.call(request)), permit, span }
            }
            Err(refused) => {
                AdmissionFuture { answer: Err(Some(refused)), permit: None, span: None }
            }
        }
    }
}

/// The answer of the route, or the layer's refusal.
pub(crate) struct AdmissionFuture {
    answer: Result<RouteFuture<Infallible>, Option<ApiError>>,
    permit: Option<ConcurrencyPermit>,
    span: Option<CallSpan>,
}

impl Future for AdmissionFuture {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { answer, permit, span } = &mut *self;
        let response = match answer {
            Ok(answer) => ready!(Pin::new(answer).poll(context))?,
            Err(refused) => {
                refused.take().expect("a future is not polled after its end").into_response()
            }
        };
        if let Some(span) = span.take() {
            span.end(&response);
        }
        Poll::Ready(Ok(held(response, permit.take())))
    }
}

/// An answer whose call counts as concurrent until its body has been sent, if the call counts.
pub(crate) fn held(response: Response, permit: Option<ConcurrencyPermit>) -> Response {
    let Some(permit) = permit else { return response };
    response.map(|body| Body::new(HeldBody { body, _permit: permit }))
}

/// A body whose call counts as concurrent until it has been sent.
struct HeldBody {
    body: Body,
    _permit: ConcurrencyPermit,
}

impl hyper::body::Body for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
