//! The answer to each call by the role of this host: the [`Api`] of a host that has the jobs, or
//! the forwarding of a host that stands by.
//!
//! A host without a database has the jobs from the beginning. A host with one stands by until it
//! takes the database over; connections stay open meanwhile.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use gristmill_api::{
    AnswerBody, Api, StandbyMetrics, Unconfirmed, by_name, probe_without_jobs,
    response_over_budget, unavailable,
};
use gristmill_edge::{Answerer, CallOrigin, PeerAddress, RequestBody, TrustedProxies};
use hyper::{HeaderMap, Method, Request, Response};

use super::cluster::forward::{STANDS_BY, Standby, name_key, take_client};
use super::cluster::gate::{Gate, UNCONFIRMED, UNKNOWN};

/// The callers of a listener.
#[derive(Debug)]
pub(crate) enum Callers {
    Clients(TrustedProxies),
    /// Visitors of HTTP endpoints, by the endpoints' own names.
    Visitors(TrustedProxies),
    /// Collectors of metrics, and supervisors.
    Collectors,
    /// Hosts that stand by, with the calls of their clients.
    Hosts,
}

/// Answers the calls of a listener. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Front(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    callers: Callers,
    /// Empty while the host stands by.
    active: OnceLock<Active>,
    standby: Option<StandbyAnswers>,
}

/// The answers of a host that stands by.
#[derive(Debug, Clone)]
pub(crate) struct StandbyAnswers {
    pub(crate) forward: Arc<Standby>,
    pub(crate) metrics: StandbyMetrics,
}

/// A host that has the jobs.
#[derive(Debug)]
struct Active {
    api: Api,
    /// Of a host with a database.
    gate: Option<Gate>,
}

impl Front {
    /// That of a host that does not have the jobs yet.
    pub(crate) fn new(callers: Callers, standby: Option<StandbyAnswers>) -> Self {
        Self(Arc::new(Inner { callers, active: OnceLock::new(), standby }))
    }

    /// Answers by `api` from now on.
    pub(crate) fn activate(&self, api: Api, gate: Option<Gate>) {
        // A host becomes active once.
        let _ = self.0.active.set(Active { api, gate });
    }

    /// Answers a call.
    pub(crate) async fn answer<B>(
        self,
        mut request: Request<B>,
        origin: Arc<CallOrigin>,
    ) -> Response<AnswerBody>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Inner { callers, active, standby } = &*self.0;
        let origin = match callers {
            Callers::Clients(_) | Callers::Collectors => origin,
            Callers::Visitors(_) => match by_name(request) {
                Ok(named) => {
                    request = named;
                    origin
                }
                Err(refused) => return refused,
            },
            Callers::Hosts => match take_client(&mut request) {
                Some(client) => Arc::new(client.into()),
                None => {
                    let path = request.uri().path();
                    return unavailable(path, "the call names no client").await;
                }
            },
        };
        match (active.get(), standby) {
            (Some(Active { api, gate: None }), _) => api.clone().answer(request, origin).await,
            (Some(Active { api, gate: Some(gate) }), _) => {
                // Boxed like `forward`: each call allocates the future of this function, which
                // would have their size on a host without a database too.
                let answering = answer_if_open(api.clone(), gate, request, origin.clone()).boxed();
                let mut answer = answering.await;
                if matches!(callers, Callers::Hosts) {
                    name_key(&origin, answer.headers_mut());
                }
                answer
            }
            (None, Some(StandbyAnswers { forward, metrics })) => {
                if let Some(answer) = probe_without_jobs(request.uri().path(), STANDS_BY) {
                    return answer;
                }
                let answer = match callers {
                    Callers::Clients(_) | Callers::Visitors(_) => {
                        return forward.forward(request, &origin).boxed().await;
                    }
                    Callers::Collectors => metrics.answer(&request),
                    Callers::Hosts => None,
                };
                match answer {
                    Some(answer) => answer,
                    None => unavailable(request.uri().path(), STANDS_BY).await,
                }
            }
            (None, None) => {
                let path = request.uri().path();
                unavailable(path, "the host is starting").await
            }
        }
    }
}

impl Answerer for Front {
    type Body = AnswerBody;

    fn answer(
        self,
        request: Request<RequestBody>,
        origin: Arc<CallOrigin>,
    ) -> BoxFuture<'static, Response<AnswerBody>> {
        Self::answer(self, request, origin).boxed()
    }

    fn client(&self, peer: PeerAddress, headers: &mut HeaderMap) -> PeerAddress {
        match &self.0.callers {
            Callers::Clients(proxies) | Callers::Visitors(proxies) => proxies.client(peer, headers),
            Callers::Collectors | Callers::Hosts => peer,
        }
    }

    fn over_budget(
        path: &str,
        answer: Response<AnswerBody>,
    ) -> impl Future<Output = Response<AnswerBody>> + Send {
        response_over_budget(path, answer)
    }
}

/// Answers a call while the host is known to own the database.
async fn answer_if_open<B>(
    api: Api,
    gate: &Gate,
    mut request: Request<B>,
    origin: Arc<CallOrigin>,
) -> Response<AnswerBody>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let path = request.uri().path();
    if ["/livez", "/metrics"].contains(&path) {
        if !gate.is_open() {
            request.extensions_mut().insert(Unconfirmed);
        }
        return api.answer(request, origin).await;
    }
    if !gate.is_open() {
        return match probe_without_jobs(path, UNCONFIRMED) {
            Some(answer) => answer,
            None => unavailable(path, UNCONFIRMED).await,
        };
    }
    let is_read = is_read(request.method(), path);
    let path = path.to_owned();
    let answer = tokio::select! {
        answer = api.answer(request, origin) => answer,
        () = gate.lost() => return unavailable(&path, UNKNOWN).await,
    };
    // The answer to a change was confirmed by its commit.
    if is_read && !gate.is_open() {
        return unavailable(&path, UNCONFIRMED).await;
    }
    answer
}

/// Whether a call only reads. The queue API reads jobs by `POST`, too, below each of its prefixes.
fn is_read(method: &Method, path: &str) -> bool {
    if [Method::GET, Method::HEAD].contains(method) {
        return true;
    }
    // The API ignores empty parts. The longest of these paths has five parts.
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).take(6).collect();
    let ["v2", _, operation, _] = parts.strip_prefix(&["sdk"]).unwrap_or(&parts) else {
        return false;
    };
    ["status", "status-sync", "stream"].contains(operation)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http_body_util::{BodyExt as _, Empty};
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_calls_that_read_by_their_route_are_reads() {
        for (method, path, expected) in [
            (Method::GET, "/v1/endpoints", true),
            (Method::HEAD, "/v1/volumes/v/files/x", true),
            (Method::POST, "/v2/e/status/j", true),
            (Method::POST, "/v2/e/status-sync/j", true),
            (Method::POST, "/v2/e/stream/j", true),
            (Method::POST, "/sdk/v2/e/status/j", true),
            (Method::POST, "//sdk/v2//e/stream/j/", true),
            (Method::POST, "/v2/e/cancel/j", false),
            (Method::POST, "/v2/status/run", false),
            (Method::POST, "/v2/status/cancel/status", false),
            (Method::POST, "/v2/e/openai/v1/status/x", false),
            (Method::POST, "/sdk/v2/e/openai/stream/x", false),
            (Method::PUT, "/v1/networkvolumes/v/files/status/x", false),
            (Method::PUT, "/v1/networkvolumes/v/files/v2/e/status/x", false),
            (Method::PUT, "/v2/a/stream/manifests/latest", false),
            (Method::POST, "/sdk/sdk/v2/e/status/j", false),
            (Method::POST, "/status/", false),
        ] {
            assert_eq!(is_read(&method, path), expected, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn a_host_that_starts_refuses_in_the_format_of_the_path() {
        for (path, sentence_at) in [
            ("/v2/e/run", "/error"),
            ("/v2/e/openai/v1/models", "/error/message"),
            ("/v1/endpoints", "/message"),
        ] {
            let request = Request::builder().uri(path).body(Empty::<Bytes>::new()).unwrap();
            let peer = PeerAddress(Ipv4Addr::LOCALHOST.into());
            let front = Front::new(Callers::Clients(TrustedProxies::default()), None);
            let answer = front.answer(request, Arc::new(peer.into())).await;
            assert_eq!(answer.status(), 503, "{path}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let sentence = body.pointer(sentence_at).and_then(Value::as_str);
            assert_eq!(sentence, Some("the host is starting"), "{path}: {body}");
        }
    }
}
