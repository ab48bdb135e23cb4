//! An active host and its runners, connected in this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gristmill_cluster::{
    CannotOpen, ClusterRuntime, Runner, RunnerSettings, Runners, RunnersSettings, RuntimeSource,
};
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry, Component, Image};
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, OwnerId, ShardId, TemplateId};
use gristmill_core::job::payload::Json;
use gristmill_core::runtime::{Attempt, AttemptEnd, AttemptReport, Runtime};
use gristmill_core::sharing::shares::Level;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::signals::Signals;
use gristmill_core::store::StoreError;
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_test_support::ModelStore;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::scripted::Scripted;
use crate::sink::Sink;
use crate::{PATIENCE, attempt_key, eventually};

/// The sandboxes of a runner.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) runtime: Arc<Scripted>,
    pub(crate) components: Mutex<Vec<Component>>,
}

#[async_trait]
impl RuntimeSource for Source {
    fn open(&self, components: Vec<Component>) -> Result<Arc<dyn Runtime>, CannotOpen> {
        *self.components.lock() = components;
        Ok(self.runtime.clone())
    }

    fn add(&self, component: Component) {
        self.components.lock().push(component);
    }

    async fn prune(&self) {}
}

/// An active host with one sandbox.
pub(crate) struct Active {
    pub(crate) local: Arc<Scripted>,
    pub(crate) runtime: Arc<ClusterRuntime>,
    pub(crate) runners: Arc<Runners>,
    pub(crate) catalog: Arc<Catalog>,
    /// How long it and its runners keep attempts without a connection.
    adopt_within: Duration,
}

/// A runner that is connected to it.
pub(crate) struct Connected {
    pub(crate) runtime: Arc<Scripted>,
    pub(crate) source: Arc<Source>,
    pub(crate) tenancy: Tenancy,
    pub(crate) runner: Arc<Runner>,
    pub(crate) drain: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
}

pub(crate) const COMPONENT: &str =
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

pub(crate) fn endpoint(id: &str) -> Endpoint {
    let template = TemplateId::new("t").unwrap();
    let mut endpoint = Endpoint::new(
        EndpointId::new(id).unwrap(),
        OwnerId::new("o").unwrap(),
        template,
        Timestamp::from_millis(0),
    );
    endpoint.settings.memory_mib = 64;
    endpoint.settings.env.insert("STONE".to_owned(), "granite".to_owned());
    endpoint
}

impl Active {
    /// With endpoint `e`, which may use every sandbox alone. A lost connection ends its attempts.
    pub(crate) async fn new() -> Self {
        Self::adopting(Duration::ZERO).await
    }

    /// The same; attempts are kept for so long without a connection.
    pub(crate) async fn adopting(adopt_within: Duration) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
        let store = ModelStore::new(ShardId(1), clock.clone(), Arc::new(Signals::default()));
        let catalog = Arc::new(Catalog::open(Arc::new(store), clock.clone()).await.unwrap());
        let owner = OwnerId::new("o").unwrap();
        let component = json!({
            "digest": COMPONENT, "bytes": 4, "imports": [], "exports": [], "uploaded_at": 1,
            "compile_ms": 1, "artifacts": {}, "owners": ["o"],
            "compiled_bytes": 1, "producers": { "languages": [], "tools": [] },
        });
        let image = Image {
            name: "mill".to_owned(),
            tag: "latest".to_owned(),
            digest: COMPONENT.parse().unwrap(),
            owner: owner.clone(),
            updated_at: Timestamp::from_millis(1),
            manifest: None,
        };
        let entries = [
            CatalogEntry::Component(serde_json::from_value(component).unwrap()),
            CatalogEntry::Image(image),
            CatalogEntry::Template(Template::new(TemplateId::new("t").unwrap(), owner, "mill")),
            CatalogEntry::Endpoint(endpoint("e")),
        ];
        let changes = entries.map(CatalogChange::Put).into();
        catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
        let runners =
            Runners::new(RunnersSettings { catalog: catalog.clone(), clock, adopt_within });
        let local = Scripted::new("active", 1);
        let runtime = Arc::new(ClusterRuntime::new(local.clone(), runners.clone()));
        Self { local, runtime, runners, catalog, adopt_within }
    }

    pub(crate) fn deployment(&self, id: &str) -> Arc<Deployment> {
        self.catalog.deployment(&EndpointId::new(id).unwrap()).unwrap()
    }

    pub(crate) async fn change(&self, endpoint: Endpoint) {
        let changes = vec![CatalogChange::Put(CatalogEntry::Endpoint(endpoint))];
        self.catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
    }

    /// Connects a runner, which is ready for `e`.
    pub(crate) async fn connect(&self, name: &'static str, sandboxes: usize) -> Connected {
        let connected = self.connect_unprepared(name, sandboxes, 1 << 30).await;
        self.until_ready("e").await;
        connected
    }

    pub(crate) async fn connect_unprepared(
        &self,
        name: &'static str,
        sandboxes: usize,
        memory_bytes: u64,
    ) -> Connected {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let before = self.runners.hosts().len();
        let connected = Connected::over(theirs, name, sandboxes, memory_bytes, self.adopt_within);
        let runners = self.runners.clone();
        let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
        tokio::spawn(async move { runners.serve(ours, peer).await });
        eventually(|| self.runners.hosts().len() > before).await;
        connected
    }

    /// A connection to this host that can be cut.
    pub(crate) fn relay(&self) -> (DuplexStream, Relay) {
        let (ours, mut left) = tokio::io::duplex(1 << 16);
        let (mut right, theirs) = tokio::io::duplex(1 << 16);
        let cut = CancellationToken::new();
        let is_cut = cut.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut left, &mut right) => {}
                () = is_cut.cancelled() => {}
            }
        });
        let runners = self.runners.clone();
        let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
        tokio::spawn(async move { runners.serve(ours, peer).await });
        (theirs, Relay(cut))
    }

    /// Connects a runner over a connection that can be cut.
    pub(crate) async fn connect_by_relay(
        &self,
        name: &'static str,
        sandboxes: usize,
    ) -> (Connected, Relay) {
        let before = self.runners.hosts().len();
        let (io, relay) = self.relay();
        let connected = Connected::over(io, name, sandboxes, 1 << 30, self.adopt_within);
        eventually(|| self.runners.hosts().len() > before).await;
        self.until_ready("e").await;
        (connected, relay)
    }

    /// Waits until all runners are ready for an endpoint: then so many sandboxes are free.
    pub(crate) async fn until_ready(&self, id: &str) {
        let deployment = self.deployment(id);
        let free: usize = self.runners.hosts().iter().map(|host| host.sandboxes as usize).sum();
        let all = free + self.local.sandboxes.available_permits();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut taken = Vec::new();
            while let Some(reservation) = self.runtime.try_reserve(&deployment, Level::CLIENT) {
                taken.push(reservation);
            }
            if taken.len() == all {
                return;
            }
            assert!(Instant::now() < deadline, "{} of {all} sandboxes", taken.len());
            drop(taken);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Takes the sandbox of the active host.
    pub(crate) fn occupy(&self) -> OwnedSemaphorePermit {
        self.local.sandboxes.clone().try_acquire_owned().unwrap()
    }

    pub(crate) fn attempt(&self, script: &Value) -> Attempt {
        Attempt {
            key: attempt_key(),
            number: 3,
            deployment: self.deployment("e"),
            input: Json::from_value(script),
            s3_config: None,
            trace: None,
            timeout_ms: 60_000,
            deadline: Instant::now() + Duration::from_secs(60),
            stop: CancellationToken::new(),
        }
    }

    pub(crate) async fn perform(&self, attempt: Attempt, sink: Arc<Sink>) -> AttemptReport {
        let reservation = self.runtime.reserve(&attempt.deployment, Level::CLIENT).await;
        timeout(PATIENCE, self.runtime.perform(reservation, attempt, sink)).await.unwrap()
    }

    pub(crate) async fn run(&self, script: Value) -> AttemptEnd {
        self.perform(self.attempt(&script), Arc::default()).await.end
    }

    /// Begins an attempt, and waits until the runner runs it.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        on: &Connected,
        attempt: Attempt,
    ) -> JoinHandle<AttemptReport> {
        let (active, before) = (self.clone(), on.runtime.running());
        let task = tokio::spawn(async move { active.perform(attempt, Arc::default()).await });
        eventually(|| on.runtime.running() > before).await;
        task
    }
}

/// The number of the data directory of the runner with this name.
fn directory(name: &str) -> u64 {
    name.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte))
}

fn serve(runner: &Arc<Runner>, io: DuplexStream, drain: &CancellationToken) -> JoinHandle<()> {
    let (served, drained) = (runner.clone(), drain.clone());
    tokio::spawn(async move {
        let _ = served.serve(io, drained).await;
    })
}

/// A connection that a test can cut.
pub(crate) struct Relay(CancellationToken);

impl Relay {
    /// Ends the connection for both sides.
    pub(crate) fn cut(&self) {
        self.0.cancel();
    }
}

impl Connected {
    pub(crate) fn over(
        io: DuplexStream,
        name: &'static str,
        sandboxes: usize,
        memory_bytes: u64,
        adopt_within: Duration,
    ) -> Self {
        let runtime = Scripted::new(name, sandboxes);
        let source = Arc::new(Source { runtime: runtime.clone(), components: Mutex::default() });
        let tenancy = Tenancy::default();
        let settings = RunnerSettings {
            address: None,
            version: "1.2.3".to_owned(),
            directory: directory(name),
            sandboxes: sandboxes as u64,
            memory_bytes,
            cores: 4,
            tenancy: tenancy.clone(),
            guests: tokio::runtime::Handle::current(),
            adopt_within,
        };
        let runner = Runner::new(settings, source.clone());
        let drain = CancellationToken::new();
        let serving = serve(&runner, io, &drain);
        Self { runtime, source, tenancy, runner, drain, serving }
    }

    /// Ends its connection at the side of the active host, or that of the runner, and connects
    /// again.
    pub(crate) async fn reconnect(&mut self, active: &Active, link: &mut Relay) {
        link.cut();
        let _ = (&mut self.serving).await;
        let (io, next) = active.relay();
        *link = next;
        self.serving = serve(&self.runner, io, &self.drain);
    }
}
