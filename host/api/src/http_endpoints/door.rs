//! The way of a request: its key, its endpoint and its limits, then its handler.

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use gristmill_core::access::key::ApiKey;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint, EndpointType};
use gristmill_core::http_call::HttpBody;
use gristmill_core::http_calls::WantedAnswer;
use gristmill_core::http_requests::ObservedRequest;
use gristmill_core::id::{EndpointId, KeyId, OwnerId};
use gristmill_edge::CallOrigin;

use super::cors::Cors;
use super::deferred::{self, Later};
use super::target::{Address, PREFIX, Target};
use super::{affinity, body, noted, refusal, request, rules};
use crate::answer::browser_headers::with_security_headers;
use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::access;
use crate::identity::admission::{caller_trace, held};
use crate::identity::answer_owner;
use crate::identity::auth::{self, Form, Identity, KeyCheck};
use crate::limits::rate_limit::Operation;
use crate::request::body::announced;
use crate::state::ApiState;

/// A call before its endpoint is known.
struct WantedCall<'p> {
    parts: Parts,
    body: Body,
    target: Target<'p>,
    address: Address,
}

/// Whom a request counts for, and whether that still holds while it waits.
struct Caller {
    key: Arc<ApiKey>,
    check: KeyCheck,
}

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
        address: Address,
        refused: Option<ApiError>,
        origin: Arc<CallOrigin>,
    ) -> Response<Body>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let version = request.version();
        let answered = match refused {
            Some(refused) => Err(refused),
            None => self.found(request, address, &origin).await,
        };
        origin.end_of_call(|key| self.state.control.keys.is_valid(key));
        let (mut answer, owner) = match answered {
            Ok((answer, owner)) => (answer, Some(owner)),
            Err(refused) => (refusal::refuse(refused), origin.owner().cloned()),
        };
        answer_owner::record(&mut answer, version, owner.as_ref());
        answer
    }

    /// The answer, and its owner.
    async fn found<B>(
        &self,
        request: Request<B>,
        address: Address,
        origin: &Arc<CallOrigin>,
    ) -> Result<(Response<Body>, OwnerId), ApiError>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(origin.clone());
        let path = parts.uri.path().to_owned();
        let target = Target::of(&path).ok_or_else(|| ApiError::not_found("no endpoint"))?;
        let id = self.named(target, address)?;
        let call = WantedCall { parts, body: Body::new(body), target, address };
        let open = id.as_ref().and_then(|id| self.state.control.endpoints.open_deployment(id));
        let cors = open.as_ref().and_then(|open| Cors::of(&open.endpoint, &call.parts));
        if let Some(cors) = cors.as_ref().filter(|cors| cors.is_preflight()) {
            self.state.visitors.admit_from(origin)?;
            return Ok((cors.answer_preflight().await, cors.owner().clone()));
        }
        if address == Address::Name && !cors.as_ref().is_some_and(Cors::permits) {
            access::check_visit(self.state.control.keys.access(), &call.parts)?;
        }
        let later = Later::of(&call.parts.headers, call.target.rest.unwrap_or_default());
        let public = open.filter(|open| open.endpoint.settings.http.public && later.is_none());
        let answered = match public {
            Some(open) => self.visited(call, open, origin).await,
            None => self.admitted(call, id, origin).await,
        };
        match (answered, cors) {
            (answered, None) => answered,
            (Ok((answer, owner)), Some(cors)) => Ok((cors.added_to(answer).await, owner)),
            // A page may read why.
            (Err(refused), Some(cors)) => {
                let answer = cors.added_to(refusal::refuse(refused)).await;
                Ok((answer, cors.owner().clone()))
            }
        }
    }

    /// The endpoint that a call names; `None` if the name cannot be that of one.
    ///
    /// # Errors
    /// 404 for a host name that is none of an endpoint.
    fn named(&self, target: Target<'_>, address: Address) -> Result<Option<EndpointId>, ApiError> {
        let host = match address {
            Address::Path => return Ok(EndpointId::new(target.endpoint).ok()),
            Address::Name => target.endpoint,
        };
        let Some(domain) = &self.state.http_domain else {
            return Err(ApiError::not_found("the active host has no --http-domain"));
        };
        match host.strip_suffix(&**domain).and_then(|label| label.strip_suffix('.')) {
            Some(label) => Ok(EndpointId::new(label).ok()),
            None => self.state.control.endpoints.of_host(host).map(Some).ok_or_else(|| {
                ApiError::not_found(format!(
                    "`{host}` is the name of no endpoint: names are `ENDPOINT.{domain}`, and those in the \
                     `http.hosts` of an endpoint"
                ))
            }),
        }
    }

    /// The answer to a visitor of a public endpoint.
    async fn visited(
        &self,
        call: WantedCall<'_>,
        deployment: Arc<Deployment>,
        origin: &CallOrigin,
    ) -> Result<(Response<Body>, OwnerId), ApiError> {
        self.state.visitors.admit_from(origin)?;
        let Endpoint { id, owner, .. } = &*deployment.endpoint;
        // Each address has its share of the endpoint's calls, as each key has.
        let name = format!("visitor-{}", origin.peer().known_as()).replace(['.', ':'], "-");
        let name = KeyId::new(&name).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let key = ApiKey::of_visitor(name, owner.clone(), id.clone());
        let caller = Caller { key: Arc::new(key), check: KeyCheck::none() };
        self.called(call, deployment, caller, origin).await
    }

    /// The answer to a caller with a key.
    async fn admitted(
        &self,
        call: WantedCall<'_>,
        id: Option<EndpointId>,
        origin: &CallOrigin,
    ) -> Result<(Response<Body>, OwnerId), ApiError> {
        let form = match call.address {
            Address::Path => Form::BearerOrBare,
            Address::Name => Form::KeyOnly,
        };
        let identity = auth::identify(&call.parts, &self.state, form)?;
        let found = self.find(call.target, id, &identity).or_else(|refused| {
            self.state.limiter.count_other(&identity.key)?;
            Err(refused)
        });
        let check = KeyCheck::new(&self.state, &identity);
        let caller = Caller { key: identity.key, check };
        self.called(call, found?, caller, origin).await
    }

    /// The answer to a request for an endpoint that the caller may call, or the refusal.
    async fn called(
        &self,
        call: WantedCall<'_>,
        deployment: Arc<Deployment>,
        caller: Caller,
        origin: &CallOrigin,
    ) -> Result<(Response<Body>, OwnerId), ApiError> {
        let (method, path) = (call.parts.method.as_str(), call.target.rest.unwrap_or_default());
        let observed = self.state.control.endpoints.begin_request(&deployment, method, path);
        let owner = deployment.endpoint.owner.clone();
        let answered = self.handled(call, (deployment, &observed), caller, origin).await;
        Ok((noted::answer(&observed, answered), owner))
    }

    async fn handled(
        &self,
        WantedCall { parts, body, target, address }: WantedCall<'_>,
        (deployment, observed): (Arc<Deployment>, &Arc<ObservedRequest>),
        Caller { key, check }: Caller,
        origin: &CallOrigin,
    ) -> Result<Response<Body>, ApiError> {
        if address == Address::Path {
            rules::check_caller(&parts.headers)?;
        }
        check_form(&parts)?;
        let endpoint = &deployment.endpoint;
        let running = || self.state.control.endpoints.running_workers(&endpoint.id);
        let permit = self.state.limiter.admit(&key, endpoint, Operation::Http, running)?;
        let Some(rest) = target.rest else { return Ok(below(&parts)) };
        let has_certificate = self.state.certificate.seconds() != 0;
        let client = (address, request::scheme(&parts.headers, has_certificate), origin);
        let (uri, mut headers) = request::for_handler(&parts, target.endpoint, rest, client)?;
        let home = format!("{PREFIX}{}/", target.endpoint);
        let called = uri.authority().map(|host| format!("http://{host}{}", parts.uri.path()));
        rules::withhold(&mut headers, address, endpoint.settings.http.public);
        let affinity = affinity::wanted(&mut headers);
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut()) = (parts.method.clone(), uri);
        *request.headers_mut() = headers;
        let mut answer = match Later::of(&parts.headers, rest) {
            Some(Later::Submit) => {
                let (call, caller) = ((&parts, body), (&key, &check));
                let to = (&*deployment, address);
                let answer = deferred::submit(&self.state, call, request, caller, to).await?;
                return Ok(held(with_security_headers(answer), permit));
            }
            Some(Later::Fetch(id)) => {
                let call = (&parts.method, &*key);
                deferred::fetch(&self.state, call, &endpoint.id, id).await?
            }
            None => {
                let body = self.body(&parts, body, (&key, &check), &deployment).await?;
                let request = request.map(|()| body);
                let trace = caller_trace(&parts.headers);
                let (caller, observed) = (key.id.clone(), observed.clone());
                let affinity = affinity?;
                let wanted =
                    WantedAnswer { deployment, caller, request, affinity, trace, observed };
                let answer = self.state.http_calls.call(wanted).await?;
                // The request may have waited for minutes.
                check.check()?;
                answer.map(Body::new)
            }
        };
        affinity::name(&mut answer);
        match address {
            Address::Path => {
                rules::check_redirect(&answer, &called.unwrap_or_default(), &home)?;
                rules::confine(answer.headers_mut());
                answer = with_security_headers(answer);
            }
            Address::Name => rules::confine_name(answer.headers_mut()),
        }
        Ok(held(answer, permit))
    }

    /// The endpoint, if it exists for the key, the key may submit to it, and it answers requests.
    fn find(
        &self,
        target: Target<'_>,
        id: Option<EndpointId>,
        Identity { key, .. }: &Identity,
    ) -> Result<Arc<Deployment>, ApiError> {
        let text = target.endpoint;
        let not_found = || ApiError::not_found(format!("endpoint `{text}` not found"));
        let id = id.ok_or_else(not_found)?;
        auth::require(key, Operation::Http.scope(), Some(&id))?;
        let found = self.state.control.endpoints.deployment(key, &id).ok_or_else(not_found)?;
        match found.endpoint.kind {
            EndpointType::LoadBalancer => Ok(found),
            EndpointType::Queue => Err(ApiError::not_found(format!(
                "endpoint `{id}` has the type `QUEUE`, which takes jobs: submit them to /v2/{id}/run"
            ))),
        }
    }

    /// The body of a request: in memory if it is small, else as a stream.
    async fn body(
        &self,
        parts: &Parts,
        body: Body,
        (key, check): (&ApiKey, &KeyCheck),
        deployment: &Deployment,
    ) -> Result<HttpBody, ApiError> {
        let bytes_max = body::bytes_max(&deployment.endpoint);
        match announced(&parts.headers, bytes_max)? {
            Some(bytes) if bytes <= body::READ_AHEAD_BYTES => {
                let bodies = &self.state.bodies;
                let read = bodies.read_as_it_is(&key.id, parts, body, body::READ_AHEAD_BYTES);
                let read = read.await?;
                // It may have taken half a minute.
                check.check()?;
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
fn below(parts: &Parts) -> Response<Body> {
    let path = parts.uri.path();
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut answer = with_security_headers(Response::new(Body::empty()));
    *answer.status_mut() = StatusCode::PERMANENT_REDIRECT;
    if let Ok(location) = format!("{path}/{query}").parse() {
        answer.headers_mut().insert(header::LOCATION, location);
    }
    answer
}
