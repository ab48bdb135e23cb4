//! The sandbox as the rest of the host sees it.

use std::any::Any;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use gristmill_core::digest::ComponentDigest;
use gristmill_core::endpoint::Deployment;
use gristmill_core::id::{JobId, VolumeId};
use gristmill_core::runtime::{
    AddComponentError, Added, Attempt, AttemptReport, AttemptSink, Components, Runtime,
    RuntimeLoad, StageError, Staged, Volumes,
};
use tokio::io::AsyncRead;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::error;

use crate::artifacts::{Artifacts, Loaded, blocking};
use crate::attempt;
use crate::compile::Compiler;
use crate::component::causes;
use crate::deadline::{Halt, Watch};
use crate::disk::{Disks, Files};
use crate::egress::Egress;
use crate::end::ReportExt as _;
use crate::engine::{Engines, Pool};
use crate::idle::Idle;
use crate::instance::Instance;
use crate::lane;
use crate::records::ArtifactRecords;
use crate::staging::StagedComponent;
use crate::state::State;

/// How a sandbox is set up.
#[derive(Debug)]
pub struct SandboxSettings {
    /// The directory for `components/`, `artifacts/`, `volumes/` and `scratch/`.
    pub data_dir: PathBuf,
    /// What compiles components.
    pub compiler: Compiler,
    /// Most jobs that run at one time, at least 1; more wait for one to end. Each may take as much
    /// memory as its endpoint allows, and reserves 16 GiB of address space.
    pub running_jobs_max: u32,
    /// How their memory is allocated, if its address space can be reserved.
    pub pool: Pool,
    /// Where attempts go on that have computed for more than some milliseconds; without it they stay
    /// where they began. Its threads should have a lower priority than those of the callers.
    pub lengthy: Option<Handle>,
    /// Whether sinks are told the handler's stack when it traps, with lines of source where the
    /// component has debug information: for one's own handlers, since that information is read.
    pub explains_traps: bool,
}

impl SandboxSettings {
    /// 256 running jobs, the pool that suits this machine, and attempts that stay where they began.
    pub fn new(data_dir: PathBuf, compiler: Compiler) -> Self {
        let pool = Pool::for_this_machine();
        Self {
            data_dir,
            compiler,
            running_jobs_max: 256,
            pool,
            lengthy: None,
            explains_traps: false,
        }
    }
}

/// Why a sandbox cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenSandboxError {
    /// Files or threads.
    #[error("cannot open the sandbox: {0}")]
    Io(#[from] io::Error),
    /// The engine.
    #[error("cannot build the WebAssembly engine: {0}")]
    Engine(String),
}

/// Runs handlers, each attempt in an instance of its own unless its endpoint reuses them, and on the
/// tokio runtime of its caller. A host gives them a runtime apart from the one that serves HTTP.
#[derive(Debug)]
pub struct Sandbox {
    artifacts: Arc<Artifacts>,
    egress: Arc<Egress>,
    disks: Disks,
    places: Arc<Semaphore>,
    places_max: usize,
    waiting: Arc<AtomicU64>,
    idle: Idle,
    lengthy: Option<Handle>,
}

impl Sandbox {
    /// Opens a sandbox on its data directory. Takes tens of milliseconds.
    ///
    /// # Errors
    /// When the directory cannot be used, or no engine can be built on this machine.
    pub fn open(
        settings: SandboxSettings,
        records: Arc<dyn ArtifactRecords>,
    ) -> Result<Self, OpenSandboxError> {
        let places_max = settings.running_jobs_max.max(1);
        let engine_error = |error: wasmtime::Error| match error.downcast::<io::Error>() {
            Ok(error) => OpenSandboxError::Io(error),
            Err(error) => OpenSandboxError::Engine(causes(&error)),
        };
        let engines = Engines::new(places_max, settings.pool, settings.explains_traps);
        let engines = engines.map_err(engine_error)?;
        Ok(Self {
            artifacts: Artifacts::open(&settings.data_dir, engines, settings.compiler, records)
                .map_err(engine_error)?
                .into(),
            disks: Disks::open(&settings.data_dir)?,
            egress: Egress::new(),
            places: Arc::new(Semaphore::new(places_max as usize)),
            places_max: places_max as usize,
            waiting: Arc::default(),
            idle: Idle::default(),
            lengthy: settings.lengthy,
        })
    }

    /// Takes in a component that is in memory.
    ///
    /// # Errors
    /// [`AddComponentError`]; nothing is kept.
    pub async fn add_component(&self, bytes: Bytes) -> Result<Added, AddComponentError> {
        let failed = |error: StageError| AddComponentError::Failed(error.to_string());
        let staged = self.stage().await.map_err(failed)?;
        staged.write(bytes).await.map_err(failed)?;
        staged.add().await
    }

    /// Has a network volume lie in a directory that exists, instead of in the data directory. To be
    /// called before a job uses the volume.
    ///
    /// # Errors
    /// When the directory cannot be found, or the volume has been used.
    pub fn place_volume(&self, volume: &VolumeId, directory: &Path) -> io::Result<()> {
        self.disks.place_volume(volume, directory)
    }

    /// How memory for instances is allocated on this machine.
    pub fn pool(&self) -> Pool {
        self.artifacts.engines().pool()
    }

    /// An instance that waits for another job, or what a new one takes: a place, the component and
    /// its files. All that is waited for before an attempt can start.
    async fn ready(&self, attempt: &Attempt) -> Result<Ready, String> {
        if let Some((instance, place)) = self.idle.take(&attempt.deployment) {
            return Ok(Ready { place, start: Start::Waiting(Box::new(instance)) });
        }
        let place = self.place().await;
        let loaded = self.loaded(&attempt.deployment).await?;
        let files = self.disks.files(&attempt.deployment).await?;
        Ok(Ready { place, start: Start::New(loaded, files) })
    }

    /// The instance that handles the attempt.
    fn instance(
        &self,
        start: Start,
        attempt: Attempt,
        sink: Arc<dyn AttemptSink>,
        watch: Arc<Watch>,
    ) -> wasmtime::Result<Instance> {
        match start {
            Start::Waiting(mut instance) => {
                instance.begin(attempt, sink, watch)?;
                Ok(*instance)
            }
            Start::New(loaded, files) => {
                let state = State::new(attempt, sink, watch, self.egress.clone(), files);
                Instance::new(loaded, state)
            }
        }
    }

    async fn loaded(&self, deployment: &Deployment) -> Result<Arc<Loaded>, String> {
        let Some(digest) = deployment.component else {
            return Err(deployment.missing_component());
        };
        let metering = deployment.endpoint.limits.metering;
        self.artifacts.load(digest, metering).await.map_err(|error| error.to_string())
    }

    async fn place(&self) -> OwnedSemaphorePermit {
        struct Waiting<'a>(&'a AtomicU64);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return place;
        }
        // Seen by whoever lets an instance wait meanwhile.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.waiting);
        self.idle.end_oldest();
        let place = self.places.clone().acquire_owned().await;
        place.expect("the semaphore of places is never closed")
    }
}

/// What an attempt starts with.
struct Ready {
    place: OwnedSemaphorePermit,
    start: Start,
}

enum Start {
    Waiting(Box<Instance>),
    New(Arc<Loaded>, Option<Files>),
}

#[async_trait]
impl Runtime for Sandbox {
    async fn prepare(&self, deployment: &Deployment) -> Result<(), String> {
        self.loaded(deployment).await.map(|_| ())
    }

    fn load(&self) -> RuntimeLoad {
        let taken = self.places_max.saturating_sub(self.places.available_permits());
        let idle = self.idle.len();
        RuntimeLoad {
            running: taken.saturating_sub(idle) as u64,
            idle: idle as u64,
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }

    async fn perform(&self, attempt: Attempt, sink: Arc<dyn AttemptSink>) -> AttemptReport {
        let watch = Arc::new(Watch::new(attempt.deadline, attempt.stop.clone()));
        let ready = tokio::select! {
            biased;
            ready = self.ready(&attempt) => ready,
            // Nothing runs yet that could use the grace.
            () = attempt.stop.cancelled() => return AttemptReport::halted(Halt::Stopped),
            () = tokio::time::sleep_until(attempt.deadline.into()) => {
                return AttemptReport::halted(Halt::Deadline);
            }
        };
        let Ready { place, start } = match ready {
            Ok(ready) => ready,
            Err(reason) => return AttemptReport::failed(reason),
        };
        let job = attempt.job;
        let mut instance = match self.instance(start, attempt, sink, watch) {
            Ok(instance) => instance,
            Err(error) => return AttemptReport::failed(causes(&error)),
        };
        let ticking = self.artifacts.engines().ticking();
        let (idle, waiting) = (self.idle.clone(), self.waiting.clone());
        let attempted = async move {
            let attempted = AssertUnwindSafe(attempt::run(&mut instance)).catch_unwind().await;
            drop(ticking);
            match attempted.is_ok().then(|| instance.waits()).flatten() {
                Some(wait) => {
                    idle.put(instance, place, wait);
                    if waiting.load(Ordering::SeqCst) > 0 {
                        idle.end_oldest();
                    }
                }
                // First the store: then the pool has room for the next.
                None => drop((instance, place)),
            }
            attempted
        };
        match lane::run(attempted, self.lengthy.as_ref()).await {
            Some(attempted) => attempted.unwrap_or_else(|panic| broken(&*panic, job)),
            // The host is ending.
            None => AttemptReport::halted(Halt::Stopped),
        }
    }
}

#[async_trait]
impl Components for Sandbox {
    async fn stage(&self) -> Result<Box<dyn Staged>, StageError> {
        let artifacts = self.artifacts.clone();
        let file = {
            let artifacts = artifacts.clone();
            blocking(move || artifacts.stage()).await?
        };
        Ok(Box::new(StagedComponent { file, artifacts }))
    }

    async fn open_component(
        &self,
        component: ComponentDigest,
    ) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
        let file = tokio::fs::File::open(self.artifacts.component_path(component)).await?;
        Ok(Box::new(file))
    }

    async fn remove_components(&self, components: Vec<ComponentDigest>) -> io::Result<()> {
        for component in components {
            self.artifacts.remove(component).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Volumes for Sandbox {
    async fn remove_volume(&self, volume: &VolumeId) -> io::Result<()> {
        self.disks.remove_volume(volume).await
    }
}

/// A panic of the host inside an attempt ends the attempt, not the host.
fn broken(panic: &(dyn Any + Send), job: JobId) -> AttemptReport {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    error!(job.id = %job, "the sandbox panicked while it ran job `{job}`: {message}");
    AttemptReport::failed("the host failed while it ran the handler".to_owned())
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod reuse_tests;
#[cfg(test)]
mod tests;
