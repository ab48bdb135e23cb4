//! The connection to one runner: what it offers, and the deployments that it has made ready.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gristmill_core::deploy::endpoint::{Deployment, EndpointType};
use gristmill_core::id::EndpointId;
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::record::HostProcess;
use gristmill_core::peaks::{Peaks, SANDBOX_BASE_BYTES};
use gristmill_core::runtime::{AttemptKey, AttemptReport, RunnerHost};
use gristmill_core::sharing::permits::{Permit, Permits};
use gristmill_core::sharing::shares::Level;
use gristmill_core::time::Timestamp;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::balance::Busy;
use super::site::Site;
use crate::frames::{self, FrameBody, FrameReader};
use crate::messages::{Failure, Forget, Hello, Memory, Offer, PROTOCOL, Retire};
use crate::{convert, transport};

/// Longest time for a runner to open its sandboxes.
const HELLO_TIME_MAX: Duration = Duration::from_secs(30);

/// Time after which a deployment that a runner could not make ready is tried again.
const FAULT_PAUSE: Duration = Duration::from_secs(30);

/// The connection to a runner.
#[derive(Debug)]
pub(crate) struct Link {
    peer: SocketAddr,
    offer: Offer,
    since: Timestamp,
    requests: SendRequest<FrameBody>,
    permits: Permits,
    peaks: Peaks,
    deployments: Mutex<HashMap<EndpointId, Known>>,
    deployments_made: AtomicU64,
    is_closed: AtomicBool,
    /// Bytes of its sandboxes, as it has reported them.
    memory_bytes: AtomicU64,
    /// Whether the runner is this process, which was one before it became active.
    is_own: bool,
    /// Fires when the connection has ended.
    pub(super) lost: CancellationToken,
    /// What its end says about the runner, once it has ended.
    loss: OnceLock<HostLoss>,
}

/// A deployment that was sent to the runner.
#[derive(Debug)]
struct Known {
    deployment: Arc<Deployment>,
    number: u64,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    InProgress,
    Ready,
    Failed { at: Instant },
}

/// A runner that can run a deployment.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    link: Arc<Link>,
    number: u64,
}

/// A sandbox of a runner that is reserved for one attempt.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// The number of the deployment.
    pub(crate) deployment: u64,
    pub(crate) room: Room,
}

/// A sandbox of a runner.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) link: Arc<Link>,
    pub(crate) level: Level,
    /// Returned at the end of the attempt. An attempt that the runner has kept may have none: the
    /// runner has the sandbox, and the other attempts wait there.
    pub(crate) permit: Option<Permit>,
}

/// Why a runner did not answer a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0}")]
    Connection(#[from] hyper::Error),
    #[error("{0}")]
    Message(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
}

/// The end of a connection.
#[derive(Debug)]
pub(crate) struct LinkEnd {
    pub(crate) reason: String,
    /// What it says about a runner that does not connect again.
    pub(crate) loss: HostLoss,
}

/// What a failure of a connection says about a runner that does not connect again: the kernel
/// closes the connections of a process that has ended, and nothing closes that of a machine without
/// power or a network.
fn loss_of(error: &hyper::Error) -> HostLoss {
    use io::ErrorKind as Kind;
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(this) = cause {
        if let Some(error) = this.downcast_ref::<io::Error>() {
            let is_silence = matches!(
                error.kind(),
                Kind::TimedOut
                    | Kind::HostUnreachable
                    | Kind::NetworkUnreachable
                    | Kind::NetworkDown
            );
            return if is_silence { HostLoss::Unreachable } else { HostLoss::Crash };
        }
        cause = this.source();
    }
    // Such as pings without an answer.
    HostLoss::Unreachable
}

impl Link {
    /// The connection has ended so.
    pub(crate) fn lose(&self, loss: HostLoss) {
        self.close();
        // It ends once.
        let _ = self.loss.set(loss);
        self.lost.cancel();
    }

    /// What the end of the connection says about a runner that does not connect again.
    pub(crate) fn loss(&self) -> HostLoss {
        self.loss.get().copied().unwrap_or(HostLoss::Unreachable)
    }

    /// Greets a runner, which is this process if `is_own`. Returns the connection, and a future
    /// that resolves to the reason of its end.
    pub(crate) async fn open<IO>(
        io: IO,
        peer: SocketAddr,
        site: &Site,
        is_own: bool,
    ) -> Result<(Self, impl Future<Output = LinkEnd> + use<IO>), LinkError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, connection) = transport::client().handshake(TokioIo::new(io)).await?;
        let connection = tokio::spawn(connection);
        let ended = async move {
            let (reason, loss) = match connection.await {
                Ok(Ok(())) => ("it has ended the connection".to_owned(), HostLoss::Crash),
                Ok(Err(error)) => (format!("the connection is lost: {error}"), loss_of(&error)),
                Err(error) => (error.to_string(), HostLoss::Unreachable),
            };
            LinkEnd { reason, loss }
        };
        let view = site.settings.catalog.view();
        let records = view.components.values().map(|component| &**component);
        let hello = Hello { protocol: PROTOCOL, components: convert::components(records) };
        let greeted = timeout(HELLO_TIME_MAX, ask::<Offer>(&requests, "/hello", &hello)).await;
        let silent = || LinkError::Refused(format!("no answer within {HELLO_TIME_MAX:?}"));
        let offer = greeted.map_err(|_| silent())??;
        if offer.protocol != PROTOCOL {
            return Err(LinkError::Refused(format!(
                "its version {} speaks version {} of the protocol between hosts, and this host version \
                 {PROTOCOL}",
                offer.version, offer.protocol
            )));
        }
        let sandboxes = usize::try_from(offer.sandboxes).unwrap_or(usize::MAX);
        let tenancy = site.settings.catalog.tenancy();
        let permits = Permits::new(sandboxes, offer.memory_bytes, tenancy);
        let link = Self {
            peer,
            offer,
            since: site.settings.clock.now(),
            requests,
            permits,
            peaks: Peaks::default(),
            deployments: Mutex::default(),
            deployments_made: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            memory_bytes: AtomicU64::new(0),
            is_own,
            lost: CancellationToken::new(),
            loss: OnceLock::new(),
        };
        Ok((link, ended))
    }

    pub(crate) fn offer(&self) -> &Offer {
        &self.offer
    }

    /// The process of the runner.
    pub(crate) fn process(&self) -> HostProcess {
        let Offer { directory, instance, .. } = self.offer;
        HostProcess { directory, instance }
    }

    /// Whether the runner is this process.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Its address, for the operator.
    pub(crate) fn name(&self) -> String {
        match self.offer.address.is_empty() {
            true => self.peer.ip().to_string(),
            false => self.offer.address.clone(),
        }
    }

    pub(crate) fn host(&self) -> RunnerHost {
        let offer = &self.offer;
        RunnerHost {
            address: self.name(),
            version: offer.version.clone(),
            sandboxes: offer.sandboxes,
            cores: offer.cores,
            running: self.running(),
            memory_bytes: self.memory_bytes.load(Ordering::Relaxed),
            memory_bytes_max: offer.memory_bytes,
            since: self.since,
        }
    }

    /// Attempts that run there, and sandboxes that are reserved.
    pub(crate) fn running(&self) -> u64 {
        self.permits.taken() as u64
    }

    /// The bytes that an attempt there needs to begin. The runner charges what it has from then on,
    /// and lets it wait for more.
    fn estimate(&self, deployment: &Deployment) -> u64 {
        self.peaks.estimate(deployment).min(self.permits.bytes_of_owner_max())
    }

    /// Follows the memory of its sandboxes: an attempt may have more there than when it began.
    pub(super) async fn follow_memory(&self) -> Result<(), LinkError> {
        let (_orders, body) = frames::channel();
        let answer = self.send("/memory", body).await?;
        let mut reports = FrameReader::new(answer.into_body());
        while let Some(Memory { used_bytes }) = reports.next().await? {
            self.memory_bytes.store(used_bytes, Ordering::Relaxed);
            // The attempts that this host has begun there are counted already.
            self.permits.withhold(used_bytes.saturating_sub(self.permits.bytes().taken));
        }
        Ok(())
    }

    /// An attempt has ended there.
    pub(crate) fn ended(&self, deployment: &Deployment, report: &AttemptReport) {
        let bytes = report.usage.memory_bytes_peak + SANDBOX_BASE_BYTES;
        self.peaks.ended(deployment, &report.end, bytes);
    }

    /// Uses it for no further attempt.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Sends a request, and returns the head of the answer. An error means that the runner has not
    /// begun to answer it.
    pub(crate) async fn send(
        &self,
        path: &str,
        body: FrameBody,
    ) -> Result<Response<Incoming>, LinkError> {
        send(&self.requests, path, body).await
    }

    /// The runner for this deployment, if it is ready there. Otherwise begins to make it ready. A
    /// network volume belongs to the active host, so its jobs run there; so do HTTP requests, which
    /// are not repeated when a host is lost.
    pub(crate) fn prepared(
        self: &Arc<Self>,
        site: &Arc<Site>,
        deployment: &Arc<Deployment>,
    ) -> Option<Prepared> {
        let endpoint = &deployment.endpoint;
        if self.is_closed.load(Ordering::Acquire)
            || endpoint.network_volume.is_some()
            || endpoint.kind == EndpointType::LoadBalancer
            || endpoint.memory_bytes_max() > self.permits.bytes_of_owner_max()
        {
            return None;
        }
        let component =
            site.settings.catalog.view().components.get(&deployment.component?)?.clone();
        let mut deployments = self.deployments.lock();
        if let Some(known) = deployments.get(&endpoint.id)
            && Arc::ptr_eq(&known.deployment, deployment)
        {
            match known.state {
                State::Ready => return Some(Prepared { link: self.clone(), number: known.number }),
                State::InProgress => return None,
                State::Failed { at } if at.elapsed() < FAULT_PAUSE => return None,
                State::Failed { .. } => {}
            }
        }
        let number = self.deployments_made.fetch_add(1, Ordering::Relaxed) + 1;
        let known = Known { deployment: deployment.clone(), number, state: State::InProgress };
        deployments.insert(endpoint.id.clone(), known);
        let prepare = convert::prepare(number, deployment, &component);
        let (link, site, id) = (self.clone(), site.clone(), endpoint.id.clone());
        tokio::spawn(async move {
            let prepared = ask::<Failure>(&link.requests, "/prepare", &prepare).await;
            let state = match prepared {
                Ok(_) => State::Ready,
                Err(error) => {
                    if !link.is_closed.load(Ordering::Acquire) {
                        warn!(endpoint.id = %id, "endpoint `{id}` cannot run on the host {}: {error}", link.name());
                    }
                    State::Failed { at: Instant::now() }
                }
            };
            if let Some(known) = link.deployments.lock().get_mut(&id)
                && known.number == number
            {
                known.state = state;
            }
            site.changed();
        });
        None
    }

    /// The sandbox of an attempt that the runner has kept.
    pub(crate) fn room_of_kept(
        self: &Arc<Self>,
        deployment: &Arc<Deployment>,
        level: Level,
    ) -> Room {
        let share = self.permits.share(&deployment.endpoint.owner, &deployment.endpoint.id);
        let permit = share.try_take(self.estimate(deployment), level);
        Room { link: self.clone(), level, permit }
    }

    /// Ends attempts that the runner has kept in vain.
    pub(crate) fn end_attempts(self: &Arc<Self>, attempts: &[AttemptKey]) {
        let forget = Forget { attempts: attempts.iter().map(convert::attempt_name).collect() };
        let link = self.clone();
        // Without threads, the process is about to end.
        let Ok(threads) = Handle::try_current() else { return };
        threads.spawn(async move {
            if let Err(error) = ask::<Failure>(&link.requests, "/forget", &forget).await {
                debug!(%error, "the host {} keeps attempts in vain: {error}", link.name());
            }
        });
    }

    /// Makes the deployment with this number ready again before its next attempt: the runner does
    /// not know it.
    pub(crate) fn forget(&self, number: u64) {
        self.deployments.lock().retain(|_, known| known.number != number);
    }

    /// Ends the idle instances of an endpoint there, unless they belong to its `current`
    /// deployment.
    pub(crate) fn retire(
        self: &Arc<Self>,
        endpoint: &EndpointId,
        current: Option<&Arc<Deployment>>,
    ) {
        if current.is_none() {
            self.peaks.forget(endpoint);
        }
        let mut deployments = self.deployments.lock();
        let Some(known) = deployments.get(endpoint) else { return };
        if current.is_some_and(|current| Arc::ptr_eq(current, &known.deployment)) {
            return;
        }
        let retire = Retire { endpoint: endpoint.to_string(), last: known.number };
        deployments.remove(endpoint);
        let link = self.clone();
        tokio::spawn(async move {
            if let Err(error) = ask::<Failure>(&link.requests, "/retire", &retire).await {
                debug!(%error, "the host {} was not notified of a change: {error}", link.name());
            }
        });
    }
}

impl Prepared {
    pub(crate) fn busy(&self) -> Busy {
        Busy { running: self.link.running(), cores: self.link.offer.cores.max(1) }
    }

    /// A sandbox, if there is room now and no worker waits for it.
    pub(crate) fn try_reserve(&self, deployment: &Deployment, level: Level) -> Option<Reserved> {
        let endpoint = &deployment.endpoint;
        let share = self.link.permits.share(&endpoint.owner, &endpoint.id);
        let permit = share.try_take(self.link.estimate(deployment), level)?;
        Some(self.room(permit, level))
    }

    /// Waits for a sandbox.
    pub(crate) async fn reserve(self, deployment: Arc<Deployment>, level: Level) -> Reserved {
        let endpoint = &deployment.endpoint;
        let share = self.link.permits.share(&endpoint.owner, &endpoint.id);
        let permit = share.queue(self.link.estimate(&deployment), level).await;
        self.room(permit, level)
    }

    fn room(&self, permit: Permit, level: Level) -> Reserved {
        let room = Room { link: self.link.clone(), level, permit: Some(permit) };
        Reserved { deployment: self.number, room }
    }
}

impl Reserved {
    /// The process that has the sandbox.
    pub(crate) fn process(&self) -> HostProcess {
        self.room.link.process()
    }
}

async fn send(
    requests: &SendRequest<FrameBody>,
    path: &str,
    body: FrameBody,
) -> Result<Response<Incoming>, LinkError> {
    let mut requests = requests.clone();
    requests.ready().await?;
    let request = Request::post(format!("http://runner{path}")).body(body);
    let request = request.map_err(|error| LinkError::Refused(error.to_string()))?;
    Ok(requests.send_request(request).await?)
}

/// Sends a message, and returns the answer.
async fn ask<M: Message + Default>(
    requests: &SendRequest<FrameBody>,
    path: &str,
    message: &impl Message,
) -> Result<M, LinkError> {
    let answer = send(requests, path, frames::single(message)).await?;
    let is_ok = answer.status() == StatusCode::OK;
    let mut reader = FrameReader::new(answer.into_body());
    if is_ok {
        return Ok(reader.next::<M>().await?.unwrap_or_default());
    }
    let failure = reader.next::<Failure>().await?.unwrap_or_default();
    Err(LinkError::Refused(failure.error))
}
