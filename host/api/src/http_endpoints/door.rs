//! The way of a request: its key, its endpoint and its limits, then its handler.

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::uri::Scheme;
use axum::http::{Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use gristmill_core::deploy::endpoint::{Deployment, EndpointType};
use gristmill_core::http_call::HttpBody;
use gristmill_core::http_calls::WantedAnswer;
use gristmill_core::id::EndpointId;
use gristmill_edge::CallOrigin;

use super::target::{PREFIX, Target};
use super::{body, refusal, request, rules};
use crate::answer::browser_headers::with_security_headers;
use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::admission::{caller_trace, held};
use crate::identity::answer_owner;
use crate::identity::auth::{self, Form, Identity, KeyCheck};
use crate::limits::rate_limit::Operation;
use crate::request::body::announced;
use crate::state::ApiState;

/// Answers the calls below `/http`.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    state: ApiState,
}

impl Door {
    pub(crate) fn new(state: ApiState) -> Self {
        Self { state }
    }

    /// Answers a call, unless it was `refused` already.
    pub(crate) async fn answer<B>(
        self,
        request: Request<B>,
        refused: Option<ApiError>,
        origin: Arc<CallOrigin>,
    ) -> Response<Body>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let version = request.version();
        let answered = match refused {
            Some(refused) => Err(refused),
            None => self.admitted(request, &origin).await,
        };
        origin.end_of_call(|key| self.state.control.keys.is_valid(key));
        let mut answer = answered.unwrap_or_else(refusal::refuse);
        answer_owner::record(&mut answer, version, origin.owner());
        answer
    }

    async fn admitted<B>(
        &self,
        request: Request<B>,
        origin: &Arc<CallOrigin>,
    ) -> Result<Response<Body>, ApiError>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(origin.clone());
        let identity = auth::identify(&parts, &self.state, Form::BearerOrBare)?;
        rules::check_caller(&parts.headers)?;
        check_form(&parts)?;
        let path = parts.uri.path().to_owned();
        let target = Target::of(&path).ok_or_else(|| ApiError::not_found("no endpoint"))?;
        let found = self.find(&target, &identity).or_else(|refused| {
            self.state.limiter.count_other(&identity.key)?;
            Err(refused)
        });
        let deployment = found?;
        let endpoint = &deployment.endpoint;
        let running = || self.state.control.endpoints.running_workers(&endpoint.id);
        let permit = self.state.limiter.admit(&identity.key, endpoint, Operation::Http, running)?;
        let Some(rest) = target.rest else { return Ok(below(&parts, &path)) };
        let scheme = match self.state.certificate.seconds() {
            0 => Scheme::HTTP,
            _ => Scheme::HTTPS,
        };
        let client = (scheme, &**origin);
        let (uri, headers) = request::for_handler(&parts, target.endpoint, rest, client)?;
        let body = self.body(&parts, Body::new(body), &identity, &deployment).await?;
        let mut request = Request::new(body);
        (*request.method_mut(), *request.uri_mut()) = (parts.method.clone(), uri);
        *request.headers_mut() = headers;
        let trace = caller_trace(&parts.headers);
        let wanted = WantedAnswer { deployment: deployment.clone(), request, trace };
        let mut answer = self.state.http_calls.call(wanted).await?;
        // The request may have waited for minutes.
        KeyCheck::new(&self.state, &identity).check()?;
        rules::confine(answer.headers_mut());
        let answer = with_security_headers(answer.map(Body::new));
        Ok(held(answer, permit))
    }

    /// The endpoint, if it exists for the key, the key may submit to it, and it answers requests.
    fn find(
        &self,
        target: &Target<'_>,
        Identity { key, .. }: &Identity,
    ) -> Result<Arc<Deployment>, ApiError> {
        let text = target.endpoint;
        let not_found = || ApiError::not_found(format!("endpoint `{text}` not found"));
        let id = EndpointId::new(text).map_err(|_| not_found())?;
        auth::require(key, Operation::Http.scope(), Some(&id))?;
        let found = self.state.control.endpoints.deployment(key, &id).ok_or_else(not_found)?;
        match found.endpoint.kind {
            EndpointType::LoadBalancer => Ok(found),
            EndpointType::Queue => Err(ApiError::not_found(format!(
                "endpoint `{text}` has the type `QUEUE`, which takes jobs: submit them to /v2/{text}/run"
            ))),
        }
    }

    /// The body of a request: in memory if it is small, else as a stream.
    async fn body(
        &self,
        parts: &Parts,
        body: Body,
        identity: &Identity,
        deployment: &Deployment,
    ) -> Result<HttpBody, ApiError> {
        let mib = deployment.endpoint.settings.http.max_request_mib;
        let bytes_max = usize::try_from(u64::from(mib) << 20).unwrap_or(usize::MAX);
        match announced(&parts.headers, bytes_max)? {
            Some(bytes) if bytes <= body::READ_AHEAD_BYTES => {
                let key = &identity.key.id;
                let bodies = &self.state.bodies;
                let read = bodies.read_as_it_is(key, parts, body, body::READ_AHEAD_BYTES).await?;
                // It may have taken half a minute.
                KeyCheck::new(&self.state, identity).check()?;
                Ok(body::whole(read))
            }
            Some(_) | None => Ok(body::stream(body, bytes_max)),
        }
    }
}

/// Refuses the methods and the upgrade that no handler can answer.
fn check_form(parts: &Parts) -> Result<(), ApiError> {
    if [Method::CONNECT, Method::TRACE].contains(&parts.method) {
        let sentence = format!("the method {} is not answered here", parts.method);
        return Err(ApiError::new(ErrorCode::MethodNotAllowed, sentence));
    }
    if parts.headers.contains_key(header::UPGRADE) {
        let sentence = "handlers of HTTP answer requests only: WebSockets and other upgrades are not \
                        supported";
        return Err(ApiError::new(ErrorCode::NotImplemented, sentence));
    }
    Ok(())
}

/// The handler's paths begin below the slash, so that its relative links work.
fn below(parts: &Parts, path: &str) -> Response<Body> {
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut answer = with_security_headers(Response::new(Body::empty()));
    *answer.status_mut() = StatusCode::PERMANENT_REDIRECT;
    debug_assert!(path.starts_with(PREFIX));
    if let Ok(location) = format!("{path}/{query}").parse() {
        answer.headers_mut().insert(header::LOCATION, location);
    }
    answer
}
