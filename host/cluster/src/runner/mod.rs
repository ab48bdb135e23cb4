//! The side of a runner: it serves the attempts that the active host sends over one connection.
//!
//! **Its end.** [`Runner::serve`] ends with the connection. Its attempts are [kept](attempts), and
//! offered over the next connection. A drain lets attempts end, and takes no new ones.

mod attempt;
mod attempts;
mod connection;
mod memory;
mod sink;
mod unconfirmed;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::sync::{Arc, OnceLock};

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::id::EndpointId;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::attempts::KeptAttempts;
use self::connection::Connection;
pub use self::connection::{CannotOpen, Runner, RunnerSettings, RuntimeSource};
use crate::frames::{self, FrameBody, FrameReader};
use crate::messages::{Failure, Forget, Hello, Offer, PROTOCOL, Prepare, Retire};
use crate::{convert, transport};

impl Runner {
    /// A runner with the sandboxes of this source.
    pub fn new(settings: RunnerSettings, source: Arc<dyn RuntimeSource>) -> Arc<Self> {
        let attempts = KeptAttempts::new(settings.adopt_within);
        let instance = RandomState::new().build_hasher().finish();
        Arc::new(Self { settings, source, stop: CancellationToken::new(), attempts, instance })
    }

    /// Serves a connection to the active host until that ends. After `drain` fires it takes no more
    /// attempts, and ends when the last one has ended.
    ///
    /// # Errors
    /// Why the connection was lost.
    pub async fn serve<IO>(
        self: &Arc<Self>,
        io: IO,
        drain: CancellationToken,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let lost = CancellationToken::new();
        // Also when this future is dropped.
        let _lost_at_end = lost.clone().drop_guard();
        let connection = Arc::new(Connection {
            runner: self.clone(),
            runtime: OnceLock::new(),
            deployments: Mutex::default(),
            drain: drain.clone(),
            lost,
        });
        let service = service_fn(move |request| {
            let connection = connection.clone();
            async move { Ok::<_, Infallible>(connection.answer(request).await) }
        });
        let http = transport::server(self.settings.guests.clone());
        let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(io), service));
        let served = tokio::select! {
            served = &mut serving => served,
            () = drain.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        Ok(served?)
    }

    /// Stops the attempts in progress, and all later ones: their jobs wait again.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Connection {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<FrameBody> {
        let (head, body) = request.into_parts();
        let answered = match head.uri.path() {
            "/attempt" => return self.run_attempt(body),
            "/memory" => return self.report_memory(),
            "/hello" => self.hello(body).await,
            "/prepare" => self.prepare(body).await,
            "/retire" => self.retire(body).await,
            "/forget" => self.forget(body).await,
            other => Err(format!("there is no request `{other}`")),
        };
        match answered {
            Ok(body) => Response::new(body),
            Err(error) => {
                let failure = Failure { reason: String::new(), error };
                let mut refused = Response::new(frames::single(&failure));
                *refused.status_mut() = StatusCode::CONFLICT;
                refused
            }
        }
    }

    async fn hello(&self, body: Incoming) -> Result<FrameBody, String> {
        let Hello { protocol, components } = message(body).await?;
        let RunnerSettings { address, version, sandboxes, memory_bytes, cores, .. } =
            &self.runner.settings;
        if protocol == PROTOCOL {
            let records = components.iter().map(|record| convert::component(record));
            let records = records.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
            let source = self.runner.source.clone();
            let open = tokio::task::spawn_blocking(move || source.open(records));
            let opened = open.await.map_err(|error| error.to_string())?;
            let runtime = opened.map_err(|error| error.to_string())?;
            // The active host greets once.
            let _ = self.runtime.set(runtime);
        }
        Ok(frames::single(&Offer {
            protocol: PROTOCOL,
            version: version.clone(),
            address: address.map(|address| address.to_string()).unwrap_or_default(),
            sandboxes: *sandboxes,
            memory_bytes: *memory_bytes,
            cores: *cores,
            instance: self.runner.instance,
            directory: self.runner.settings.directory,
            attempts: self.runner.attempts.offered(),
        }))
    }

    async fn prepare(&self, body: Incoming) -> Result<FrameBody, String> {
        let prepare: Prepare = message(body).await?;
        let (deployment, component) =
            convert::deployment(&prepare).map_err(|error| error.to_string())?;
        self.runner.source.add(component);
        self.runtime()?.prepare(&deployment).await.map_err(|error| error.to_string())?;
        self.deployments.lock().insert(prepare.deployment, deployment);
        let source = self.runner.source.clone();
        tokio::spawn(async move { source.prune().await });
        Ok(frames::single(&Failure::default()))
    }

    async fn retire(&self, body: Incoming) -> Result<FrameBody, String> {
        let Retire { endpoint, last } = message(body).await?;
        let endpoint: EndpointId =
            endpoint.parse().map_err(|_| format!("`{endpoint}` is no id of an endpoint"))?;
        let current = end_use(&mut self.deployments.lock(), &endpoint, last);
        self.runtime()?.retire(&endpoint, current.as_ref());
        Ok(frames::single(&Failure::default()))
    }

    async fn forget(&self, body: Incoming) -> Result<FrameBody, String> {
        let Forget { attempts } = message(body).await?;
        for key in convert::attempt_keys(&attempts) {
            self.runner.attempts.forget(&key);
        }
        Ok(frames::single(&Failure::default()))
    }

    /// An answer that ends with the connection, or at the drain, which waits for all answers.
    fn report_memory(self: Arc<Self>) -> Response<FrameBody> {
        let (reports, body) = frames::channel();
        let guests = self.runner.settings.guests.clone();
        let reporting = async move {
            let Ok(runtime) = self.runtime() else { return };
            self.drain.run_until_cancelled(memory::report(&*runtime, &reports)).await;
        };
        Response::new(body.with_task(AbortOnDropHandle::new(guests.spawn(reporting))))
    }

    /// The answer begins before the attempt: a request without an answer has begun nothing.
    fn run_attempt(self: Arc<Self>, orders: Incoming) -> Response<FrameBody> {
        let (reports, body) = frames::channel();
        let guests = self.runner.settings.guests.clone();
        let task = guests.spawn(attempt::serve(self, orders, reports));
        Response::new(body.with_task(AbortOnDropHandle::new(task)))
    }
}

/// Removes the deployments of an endpoint up to `last`, and returns its newest other one: the
/// message may arrive after the next deployment is ready.
fn end_use(
    deployments: &mut HashMap<u64, Arc<Deployment>>,
    endpoint: &EndpointId,
    last: u64,
) -> Option<Arc<Deployment>> {
    deployments.retain(|number, known| *number > last || known.endpoint.id != *endpoint);
    let of_endpoint = deployments.iter().filter(|(_, known)| known.endpoint.id == *endpoint);
    of_endpoint.max_by_key(|(number, _)| **number).map(|(_, newest)| newest.clone())
}

/// The message of a request that has only one.
async fn message<M: prost::Message + Default>(body: Incoming) -> Result<M, String> {
    let read: io::Result<Option<M>> = FrameReader::new(body).next().await;
    read.map_err(|error| error.to_string())?.ok_or_else(|| "the request is empty".to_owned())
}

#[cfg(test)]
mod tests {
    use gristmill_core::deploy::endpoint::Endpoint;
    use gristmill_core::deploy::template::Template;
    use gristmill_core::id::{OwnerId, TemplateId};
    use gristmill_core::incarnation::EndpointIncarnation;
    use gristmill_core::time::Timestamp;

    use super::*;

    fn deployment(endpoint: &str) -> Arc<Deployment> {
        let (id, owner) = (endpoint.parse().unwrap(), OwnerId::new("o").unwrap());
        let template = TemplateId::new("t").unwrap();
        let time = Timestamp::from_millis(0);
        Arc::new(Deployment {
            endpoint: Arc::new(Endpoint::new(id, owner.clone(), template.clone(), time)),
            template: Arc::new(Template::new(template, owner, "mill")),
            component: None,
            input_schema: None,
            volume: None,
            incarnation: EndpointIncarnation::default(),
        })
    }

    #[test]
    fn a_late_message_about_a_change_leaves_the_next_deployment() {
        let endpoint: EndpointId = "e".parse().unwrap();
        let [e1, f2, e3, e4] = ["e", "f", "e", "e"].map(deployment);
        let mut deployments = HashMap::from([(1, e1), (2, f2), (3, e3), (4, e4.clone())]);
        let numbers = |deployments: &HashMap<u64, _>| {
            let mut numbers: Vec<_> = deployments.keys().copied().collect();
            numbers.sort_unstable();
            numbers
        };
        let current = end_use(&mut deployments, &endpoint, 1).unwrap();
        assert!(Arc::ptr_eq(&current, &e4));
        assert_eq!(numbers(&deployments), [2, 3, 4]);
        assert!(end_use(&mut deployments, &endpoint, 4).is_none());
        assert_eq!(numbers(&deployments), [2]);
    }
}
