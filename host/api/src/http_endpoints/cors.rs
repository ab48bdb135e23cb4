//! The pages of other origins that may ask an endpoint (CORS). The host answers preflight requests
//! in the place of the handler, without a key, a worker or a body.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, header};
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::id::OwnerId;
use gristmill_wire::management::CorsSettings;
use tower::{Layer as _, Service as _, service_fn};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

use crate::answer::browser_headers::with_security_headers;

/// The headers of a request that CORS reads.
const READ: [HeaderName; 3] =
    [header::ORIGIN, header::ACCESS_CONTROL_REQUEST_METHOD, header::ACCESS_CONTROL_REQUEST_HEADERS];

/// The headers of an answer that only the host sets then.
const SET: [HeaderName; 6] = [
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
];

/// The rules of an endpoint for one request.
pub(super) struct Cors {
    endpoint: Arc<Endpoint>,
    /// The part of the request that they concern.
    request: Request<()>,
}

impl Cors {
    /// `None` for an endpoint without such rules.
    pub(super) fn of(endpoint: &Arc<Endpoint>, parts: &Parts) -> Option<Self> {
        if endpoint.settings.http.cors.origins.is_empty() {
            return None;
        }
        let mut request = Request::new(());
        request.method_mut().clone_from(&parts.method);
        for name in READ {
            if let Some(value) = parts.headers.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        Some(Self { endpoint: endpoint.clone(), request })
    }

    /// The endpoint's owner.
    pub(super) fn owner(&self) -> &OwnerId {
        &self.endpoint.owner
    }

    /// Whether the request's origin is a permitted one.
    pub(super) fn permits(&self) -> bool {
        let origin = self.request.headers().get(header::ORIGIN);
        let is_its = |permitted: &String| {
            permitted == "*" || origin.is_some_and(|origin| origin == permitted.as_str())
        };
        self.endpoint.settings.http.cors.origins.iter().any(is_its)
    }

    /// Whether a browser asks before it sends the request itself.
    pub(super) fn is_preflight(&self) -> bool {
        let headers = self.request.headers();
        self.request.method() == Method::OPTIONS
            && headers.contains_key(header::ORIGIN)
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// The answer to a preflight request.
    pub(super) async fn answer_preflight(&self) -> Response<Body> {
        let answer = self.applied(Method::OPTIONS, Response::default()).await;
        with_security_headers(answer)
    }

    /// An answer that a page may read, if its origin is a permitted one.
    pub(super) async fn added_to(&self, mut answer: Response<Body>) -> Response<Body> {
        for name in SET {
            answer.headers_mut().remove(name);
        }
        // The library takes each OPTIONS for a preflight request.
        self.applied(Method::GET, answer).await
    }

    async fn applied(&self, method: Method, answer: Response<Body>) -> Response<Body> {
        let mut answer = Some(answer);
        let answered = service_fn(|_: Request<()>| {
            ready(Ok::<_, Infallible>(answer.take().unwrap_or_default()))
        });
        let mut request = self.request.clone();
        *request.method_mut() = method;
        let Ok(answer) =
            layer(&self.endpoint.settings.http.cors).layer(answered).call(request).await;
        answer
    }
}

fn layer(settings: &CorsSettings) -> CorsLayer {
    let CorsSettings { origins, expose_headers, credentials, max_age } = settings;
    let origins = match origins.iter().any(|origin| origin == "*") {
        // The check of the settings permits no credentials with it.
        true => AllowOrigin::any(),
        false => {
            AllowOrigin::list(origins.iter().filter_map(|text| HeaderValue::from_str(text).ok()))
        }
    };
    let exposed = expose_headers.iter().filter_map(|text| text.parse::<HeaderName>().ok());
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods(AllowMethods::mirror_request())
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed.collect::<Vec<_>>())
        .allow_credentials(*credentials)
        .max_age(Duration::from_secs((*max_age).into()))
}

#[cfg(test)]
#[path = "cors_tests.rs"]
mod tests;
