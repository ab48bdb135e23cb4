//! The runtime of handlers: uploads are stored and compiled, and each attempt runs in its own
//! sandbox.
//!
//! No part of an attempt outlives its permit: its memory, its instance and its open files end
//! before the permit returns. The permits bound the number of sandboxes and their memory; opening
//! takes tens of milliseconds.

use std::any::Any;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::egress::HostPattern;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint, EndpointType};
use gristmill_core::deploy::volume::Volume;
use gristmill_core::depot::Depot;
use gristmill_core::http_call::{Affinity, HttpCall, NoResponse};
use gristmill_core::id::{EndpointId, JobId, OwnerId, VolumeId};
use gristmill_core::metrics::instruments::DurationTotals;
use gristmill_core::runtime::{
    AddComponentError, AddedComponent, Attempt, AttemptEnd, AttemptReport, AttemptSink, CannotRun,
    Components, EndUpload, Reservation, Runtime, RuntimeLoad, SandboxMemory, SandboxShortage,
    StageError, Staged, VolumeDirectories,
};
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::shares::Level;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::trace::Tracer;
use gristmill_egress::AddressPolicy;
use tokio::io::AsyncRead;
use tokio::runtime::Handle;
use tracing::error;

use crate::attempt::call;
use crate::attempt::compute_threads::ComputeThreads;
use crate::attempt::idle::{Idle, IdleInstance};
use crate::attempt::instance::Instance;
use crate::attempt::names::Names;
use crate::attempt::outcome::ReportExt as _;
use crate::attempt::work::Work;
use crate::compile::component::causes;
use crate::compile::process::Compiler;
use crate::components::artifacts::{Artifacts, Loaded};
use crate::components::records::ArtifactRecords;
use crate::components::upload::StagedComponent;
use crate::disk::{Disks, Files, Wiping};
use crate::egress::{Egress, RequestRefusal, not_allowed};
use crate::engine::{Engines, Pool};
use crate::files::blocking;
use crate::sandbox::backstop;
use crate::sandbox::charge::{Account, Charge};
use crate::sandbox::deadline::{Halt, Watch};
use crate::sandbox::growths::Growths;
use crate::sandbox::reserves::Reserve;
use crate::sandbox::state::{State, Surroundings};
use crate::swap::SwapWatch;
use crate::wasmtime_runtime::reserved::{Reserved, ReservedRoom, Taken};
use gristmill_core::sharing::permits::{Permit, PermitShare, Permits};

/// How long a request waits for the instance that its client asks for: an instance is idle a moment
/// after its answer, when the client may send the next request already.
const INSTANCE_WAIT: Duration = Duration::from_millis(100);

/// The pause between two looks at it.
const INSTANCE_LOOK: Duration = Duration::from_millis(5);

/// The settings of a runtime.
#[derive(Debug)]
pub struct RuntimeSettings {
    /// The directory for `components/`, `artifacts/`, `volumes/` and `scratch/`.
    pub data_dir: PathBuf,
    /// The compiler of components.
    pub compiler: Compiler,
    /// Most jobs that run at one time, at least 1; more wait for one to end. Each reserves 8 to 32
    /// GiB of address space.
    pub running_jobs_max: u32,
    /// Most memory of all sandboxes together, in bytes. A deployment that allows more than this is
    /// refused.
    pub memory_bytes_max: u64,
    /// The memory that this process can have, in bytes, if it is known: sandboxes get less while it
    /// is short.
    pub available_bytes: Option<u64>,
    /// The allocation of their memory, if its address space can be reserved.
    pub pool: Pool,
    /// The runtime for attempts that have computed for more than some milliseconds; without it they
    /// stay on their first threads. Its threads should have a lower priority than those of the
    /// callers.
    pub low_priority_threads: Option<Handle>,
    /// The addresses for handlers' requests to public hosts.
    pub addresses: AddressPolicy,
    /// Hosts with private addresses that the handlers of every owner may reach, if their endpoint
    /// lists them. Endpoints of the operator need no entry here.
    pub private_hosts: Vec<HostPattern>,
    /// Makes the spans of requests.
    pub tracer: Tracer,
    /// Whether sinks receive the handler's stack when it traps, with source lines if the component
    /// has debug information. Only for trusted handlers, since this parses that information.
    pub explains_traps: bool,
    /// The sentence for a request to a host that the endpoint does not allow.
    pub request_refusal: RequestRefusal,
    /// Whether the disk has room: without it uploads are refused, and the files of handlers cannot
    /// grow.
    pub disk_space: Arc<DiskSpaceGauge>,
    /// The parties that share the host: each may hold only a share of the sandboxes.
    pub tenancy: Tenancy,
    /// Keeps the components of hosts that share a database; `None` on a host with a data directory
    /// of its own.
    pub depot: Option<Arc<dyn Depot>>,
}

impl RuntimeSettings {
    /// 256 running jobs, memory without a bound, the best pool for this machine, no runtime for
    /// lengthy attempts, and no network that the operator denies.
    pub fn new(data_dir: PathBuf, compiler: Compiler) -> Self {
        let pool = Pool::for_this_machine();
        Self {
            data_dir,
            compiler,
            running_jobs_max: 256,
            memory_bytes_max: u64::MAX,
            available_bytes: None,
            pool,
            low_priority_threads: None,
            addresses: AddressPolicy::default(),
            private_hosts: Vec::new(),
            tracer: Tracer::default(),
            explains_traps: false,
            request_refusal: not_allowed,
            disk_space: Arc::default(),
            tenancy: Tenancy::default(),
            depot: None,
        }
    }
}

/// Why a runtime cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenRuntimeError {
    /// A fault of files or threads.
    #[error("cannot open the runtime of handlers: {0}")]
    Io(#[from] io::Error),
    /// A fault of the engine.
    #[error("cannot build the WebAssembly engine: {0}")]
    Engine(String),
}

/// Runs handlers, each attempt in a new instance unless its endpoint reuses them, and on the tokio
/// runtime of its caller. A host uses a separate runtime for them, not the one that serves HTTP.
#[derive(Debug)]
pub struct WasmtimeRuntime {
    artifacts: Arc<Artifacts>,
    egress: Arc<Egress>,
    disks: Arc<Disks>,
    disk_space: Arc<DiskSpaceGauge>,
    permits: Permits,
    idle: Idle,
    taken: Taken,
    names: Names,
    account: Arc<Account>,
    threads: ComputeThreads,
}

impl WasmtimeRuntime {
    /// Opens the runtime on its data directory. Takes tens of milliseconds.
    ///
    /// # Errors
    /// When the directory cannot be used, or no engine can be built on this machine.
    pub fn open(
        settings: RuntimeSettings,
        records: Arc<dyn ArtifactRecords>,
    ) -> Result<Self, OpenRuntimeError> {
        Self::open_watching(settings, records, SwapWatch::of_this_machine())
    }

    pub(crate) fn open_watching(
        settings: RuntimeSettings,
        records: Arc<dyn ArtifactRecords>,
        swap: SwapWatch,
    ) -> Result<Self, OpenRuntimeError> {
        let sandboxes_max = settings.running_jobs_max.max(1);
        let (bytes_max, tenancy) = (settings.memory_bytes_max, settings.tenancy.clone());
        let permits = Permits::new(sandboxes_max as usize, bytes_max, tenancy);
        let engine_error = |error: wasmtime::Error| match error.downcast::<io::Error>() {
            Ok(error) => OpenRuntimeError::Io(error),
            Err(error) => OpenRuntimeError::Engine(causes(&error)),
        };
        let engines = Engines::new(sandboxes_max, settings.pool, settings.explains_traps, swap);
        let engines = engines.map_err(engine_error)?;
        let (data_dir, tenancy) = (&settings.data_dir, settings.tenancy.clone());
        let disk = (settings.disk_space.clone(), tenancy);
        let (compiler, depot) = (settings.compiler, settings.depot);
        let idle = Idle::new(permits.clone());
        let growths = Growths::new(permits.clone(), idle.room_maker());
        let artifacts = Artifacts::open(data_dir, engines, compiler, records, depot, disk);
        let artifacts = Arc::new(artifacts.map_err(engine_error)?);
        if let (Ok(runtime), Some(available)) = (Handle::try_current(), settings.available_bytes) {
            let watched = Arc::downgrade(&artifacts);
            let kept = move || Some(watched.upgrade()?.engines().kept_bytes());
            drop(runtime.spawn(backstop::watch(permits.clone(), kept, available)));
        }
        Ok(Self {
            artifacts,
            disks: Arc::new(Disks::open(
                &settings.data_dir,
                settings.disk_space.clone(),
                settings.tenancy.clone(),
            )?),
            egress: Egress::new(
                settings.addresses,
                settings.private_hosts,
                settings.tenancy,
                settings.tracer,
                settings.request_refusal,
            ),
            account: Arc::new(Account::new(growths)),
            idle,
            taken: Taken::default(),
            names: Names::default(),
            permits,
            threads: ComputeThreads::new(settings.low_priority_threads),
            disk_space: settings.disk_space,
        })
    }

    /// Adds a component of the operator from memory.
    ///
    /// # Errors
    /// [`AddComponentError`]; then nothing is kept.
    pub async fn add_component(&self, bytes: Bytes) -> Result<AddedComponent, AddComponentError> {
        let failed = |error: StageError| match error {
            StageError::NoSpace(short) => AddComponentError::NoSpace(short),
            error => AddComponentError::Failed(error.to_string()),
        };
        let staged = self.stage(&OwnerId::operator()).await.map_err(failed)?;
        staged.write(bytes).await.map_err(failed)?;
        staged.add(&OwnerId::operator()).await
    }

    /// The content of network volumes, for callers outside of handlers.
    pub fn volumes(&self) -> Arc<dyn VolumeDirectories> {
        self.disks.clone()
    }

    /// Uses an existing directory for a network volume, instead of one in the data directory. Must
    /// be called before a job uses the volume.
    ///
    /// # Errors
    /// When the directory cannot be found, or the volume has been used.
    pub fn assign_volume_directory(&self, volume: &VolumeId, directory: &Path) -> io::Result<()> {
        self.disks.assign_volume_directory(volume, directory)
    }

    /// Adds the network volumes of an earlier process, before the first job. While the host has
    /// several owners, the files of an owner grow only if they fit in the owner's disk share
    /// however full the owner's uncounted volumes are. Takes no time itself.
    pub fn restore_volumes<'a>(&self, volumes: impl IntoIterator<Item = &'a Volume>) {
        self.disks.restore_volumes(volumes);
    }

    /// Counts the volumes that no job has used, in the disk shares of their owners: reads the
    /// metadata of all their files.
    pub fn count_volumes(&self) -> impl Future<Output = ()> + Send + use<> {
        self.disks.count_volumes()
    }

    /// Continues the removals of network volumes that a crash interrupted: those of the marked
    /// volumes for which `has_record` is false. The content is removed by
    /// [`wipe_leftovers`](Self::wipe_leftovers). To be called before a job uses a volume.
    ///
    /// # Errors
    /// When the directory of the volumes cannot be read.
    pub fn resume_volume_removals(&self, has_record: impl Fn(&VolumeId) -> bool) -> io::Result<()> {
        self.disks.resume_removals(has_record)
    }

    /// Removes the files of handlers that earlier processes left behind, on a thread of low
    /// priority, until the guard is dropped: scratch space and deleted volumes. Takes no time
    /// itself.
    ///
    /// # Errors
    /// When no thread can be started; the next start removes them then.
    pub fn wipe_leftovers(&self) -> io::Result<Wiping> {
        self.disks.wipe_leftovers()
    }

    /// Removes components without a record from the depot, if there is one.
    ///
    /// # Errors
    /// Those of the depot; the next start removes them then.
    pub async fn sweep_depot(&self) -> io::Result<()> {
        self.artifacts.sweep_depot().await
    }

    /// Removes the files of components that have no record, such as those that another host has
    /// deleted.
    ///
    /// # Errors
    /// Those of the file system; the next start removes the rest then.
    pub async fn remove_orphans(&self) -> io::Result<()> {
        self.artifacts.remove_orphans().await
    }

    /// How memory for instances is allocated on this machine.
    pub fn pool(&self) -> Pool {
        self.artifacts.engines().pool()
    }

    /// The start of an attempt: the reserved instance, or the parts of a new one.
    async fn start(&self, reserved: Reserved, deployment: &Deployment) -> Result<Start, String> {
        match reserved.into_parts() {
            ReservedRoom::Instance(waiting) => Ok(Start::Reused(waiting)),
            ReservedRoom::Permit(permit) => {
                let loaded = self.loaded(deployment).await?;
                let files = self.disks.files(deployment).await?;
                Ok(Start::New(loaded, files, permit))
            }
        }
    }

    /// The room of the instance that a client asks for, in the place of another room. Waits no
    /// longer than [`INSTANCE_WAIT`]: the request has a worker, which others need.
    async fn directed(
        &self,
        reservation: Reservation,
        deployment: &Arc<Deployment>,
        Affinity { instance, is_strict }: Affinity,
    ) -> Result<Reservation, NoResponse> {
        let Ok(reserved) = reservation.downcast::<Reserved>() else {
            return Err(NoResponse::InstanceGone);
        };
        let until = Instant::now() + INSTANCE_WAIT;
        while !reserved.is(instance) {
            let level = Level::CLIENT;
            if let Some(found) = self.taken.reserve(&self.idle, deployment, level, Some(instance)) {
                return Ok(Reservation::new(found));
            }
            let is_busy = self.names.has(deployment, instance);
            if is_busy && Instant::now() < until {
                tokio::time::sleep(INSTANCE_LOOK).await;
                continue;
            }
            match (is_strict, is_busy) {
                (false, _) => break,
                (true, true) => return Err(NoResponse::InstanceBusy),
                (true, false) => return Err(NoResponse::InstanceGone),
            }
        }
        Ok(Reservation::new(*reserved))
    }

    fn share(&self, deployment: &Deployment) -> PermitShare {
        self.permits.share(&deployment.endpoint.owner, &deployment.endpoint.id)
    }

    /// The bytes that an attempt of the deployment needs to begin.
    fn estimate(&self, deployment: &Deployment) -> u64 {
        self.account.peaks.estimate(deployment).min(self.permits.bytes_of_owner_max())
    }

    /// What `workersMin` reserves.
    fn reserve_of(&self, deployment: &Deployment) -> Reserve {
        let sandboxes = deployment.endpoint.scaling().in_effect().workers_min;
        Reserve { share: self.share(deployment), sandboxes, bytes: self.estimate(deployment) }
    }

    fn reserved_permit(&self, permit: Permit) -> Reservation {
        Reservation::new(self.taken.permit(&self.idle, permit))
    }

    /// The instance that runs the attempt.
    fn instance(
        &self,
        start: Start,
        attempt: Attempt<()>,
        sink: Arc<dyn AttemptSink>,
        watch: Arc<Watch>,
    ) -> wasmtime::Result<Instance> {
        match start {
            Start::Reused(waiting) => {
                let mut instance = waiting.instance;
                instance.begin(attempt, sink, watch)?;
                Ok(instance)
            }
            Start::New(loaded, files, permit) => {
                let is_fixed = attempt.deployment.endpoint.settings.reserve_memory;
                let surroundings = Surroundings {
                    charge: Arc::new(Charge::new(permit, is_fixed)),
                    account: self.account.clone(),
                    network: self.egress.clone(),
                    files,
                };
                let endpoint = &attempt.deployment.endpoint;
                let answers_again =
                    endpoint.kind == EndpointType::LoadBalancer && endpoint.reuse_wait(1).is_some();
                let name = answers_again.then(|| self.names.begin(&attempt.deployment));
                let state = State::new(attempt, sink, watch, surroundings);
                Instance::new(loaded, state, name)
            }
        }
    }

    /// Runs an attempt to its end, with the reservation for its deployment.
    async fn attempt<W: Work>(
        &self,
        reservation: Reservation,
        attempt: Attempt<W>,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport<W::Output> {
        let (work, attempt) = attempt.split();
        let reserved = match reservation.downcast::<Reserved>() {
            Ok(reserved) => *reserved,
            Err(_) => {
                return AttemptReport::failed("the sandbox was reserved elsewhere".to_owned());
            }
        };
        let watch = Arc::new(Watch::new(attempt.deadline, attempt.stop.clone()));
        let start = tokio::select! {
            biased;
            start = self.start(reserved, &attempt.deployment) => start,
            // No handler runs yet that could use the grace period.
            () = attempt.stop.cancelled() => return AttemptReport::halted(Halt::Stopped),
            () = tokio::time::sleep_until(attempt.deadline.into()) => {
                return AttemptReport::halted(Halt::Deadline);
            }
        };
        let start = match start {
            Ok(start) => start,
            Err(reason) => return AttemptReport::failed(reason),
        };
        let (job, endpoint) = (attempt.key.job, attempt.deployment.endpoint.clone());
        let mut instance = match self.instance(start, attempt, sink, watch.clone()) {
            Ok(instance) => instance,
            Err(error) => return AttemptReport::failed(causes(&error)),
        };
        let ticking = self.artifacts.engines().ticking();
        let idle = self.idle.clone();
        let attempted = async move {
            let attempted = AssertUnwindSafe(call::run(&mut instance, work)).catch_unwind().await;
            drop(ticking);
            match attempted.is_ok().then(|| instance.waits()).flatten() {
                Some(wait) => idle.put(instance, wait),
                None => drop(instance),
            }
            attempted
        };
        match self.threads.run(endpoint, watch, attempted).await {
            Some(attempted) => attempted.unwrap_or_else(|panic| broken(&*panic, job)),
            // The host is stopping.
            None => AttemptReport::halted(Halt::Stopped),
        }
    }

    async fn loaded(&self, deployment: &Deployment) -> Result<Arc<Loaded>, String> {
        let Some(digest) = deployment.component else {
            return Err(deployment.missing_component());
        };
        let Endpoint { settings, owner, kind, .. } = &*deployment.endpoint;
        let loaded = self.artifacts.load(digest, settings.metering, owner).await;
        let loaded = loaded.map_err(|error| error.to_string())?;
        loaded.component.check((*kind).into()).map_err(|error| error.to_string())?;
        Ok(loaded)
    }

    /// Refuses a deployment whose jobs could never get their memory.
    fn check_memory(&self, deployment: &Deployment) -> Result<(), String> {
        let wanted = deployment.endpoint.memory_bytes_max();
        if wanted <= self.permits.bytes_of_owner_max() {
            return Ok(());
        }
        let (all, share) =
            (self.permits.bytes_max() >> 20, self.permits.bytes_of_owner_max() >> 20);
        let wanted_mib = wanted >> 20;
        if wanted > self.permits.bytes_max() {
            return Err(format!(
                "its memoryMib of {wanted_mib} is more than all sandboxes of this host may have together: \
                 {all} MiB (--max-sandbox-memory-mib)"
            ));
        }
        Err(format!(
            "its memoryMib of {wanted_mib} is more than the sandboxes of one owner may have together while several \
             owners have endpoints: {share} MiB, three quarters of {all} MiB (--max-sandbox-memory-mib)"
        ))
    }
}

enum Start {
    Reused(Box<IdleInstance>),
    New(Arc<Loaded>, Option<Files>, Permit),
}

#[async_trait]
impl Runtime for WasmtimeRuntime {
    async fn prepare(&self, deployment: &Deployment) -> Result<(), CannotRun> {
        self.check_memory(deployment)?;
        self.loaded(deployment).await?;
        self.disks.prepare(deployment).await;
        Ok(())
    }

    fn try_reserve(&self, deployment: &Arc<Deployment>, level: Level) -> Option<Reservation> {
        if let Some(reserved) = self.taken.reserve(&self.idle, deployment, level, None) {
            return Some(Reservation::new(reserved));
        }
        let permit = self.share(deployment).try_take(self.estimate(deployment), level)?;
        Some(self.reserved_permit(permit))
    }

    async fn reserve(&self, deployment: &Arc<Deployment>, level: Level) -> Reservation {
        if let Some(reservation) = self.try_reserve(deployment, level) {
            return reservation;
        }
        let permit = self.share(deployment).queue(self.estimate(deployment), level);
        self.idle.make_room();
        self.reserved_permit(permit.await)
    }

    fn retire(&self, endpoint: &EndpointId, current: Option<&Arc<Deployment>>) {
        self.taken.retire(&self.idle, endpoint, current);
        if current.is_none() {
            self.account.peaks.forget(endpoint);
        }
        self.account.reserves.set(endpoint, current.map(|current| self.reserve_of(current)));
        // The host may have fewer owners or endpoints than before.
        self.permits.serve();
    }

    fn shortage(&self, deployment: &Deployment) -> Option<SandboxShortage> {
        Some(self.share(deployment).shortage(self.estimate(deployment)))
    }

    fn compiles(&self) -> DurationTotals {
        self.artifacts.compiles()
    }

    fn load(&self) -> RuntimeLoad {
        let idle = self.idle.len();
        RuntimeLoad {
            running: self.permits.taken().saturating_sub(idle) as u64,
            idle: idle as u64,
            waiting: self.permits.waiting() as u64,
        }
    }

    fn memory(&self) -> SandboxMemory {
        let kept = self.artifacts.engines().kept_bytes();
        SandboxMemory { permits: self.permits.bytes(), idle: self.idle.bytes(), kept }
    }

    async fn perform(
        &self,
        reservation: Reservation,
        attempt: Attempt,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport {
        self.attempt(reservation, attempt, sink).await
    }

    async fn serve(
        &self,
        reservation: Reservation,
        attempt: Attempt<HttpCall>,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport<()> {
        let Some(affinity) = attempt.input.affinity else {
            return self.attempt(reservation, attempt, sink).await;
        };
        let (call, attempt) = attempt.split();
        match self.directed(reservation, &attempt.deployment, affinity).await {
            Ok(reservation) => self.attempt(reservation, attempt.replace(call).1, sink).await,
            Err(none) => {
                // Nobody waits for it when the client has left.
                let _ = call.answer.send(Err(none));
                AttemptEnd::Returned(()).into()
            }
        }
    }
}

#[async_trait]
impl Components for WasmtimeRuntime {
    fn end_uploads_by(&self, end_upload: EndUpload) {
        self.artifacts.end_uploads_by(end_upload);
    }

    async fn stage(&self, owner: &OwnerId) -> Result<Box<dyn Staged>, StageError> {
        if !self.disk_space.admits_work() {
            return Err(StageError::NoSpace(self.disk_space.shortage()));
        }
        let artifacts = self.artifacts.clone();
        let file = {
            let (artifacts, owner) = (artifacts.clone(), owner.clone());
            blocking(move || artifacts.stage(&owner)).await?
        };
        Ok(Box::new(StagedComponent { file, artifacts }))
    }

    async fn open_component(
        &self,
        component: ComponentDigest,
    ) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
        let path = self.artifacts.component_path(component);
        let file = match tokio::fs::File::open(&path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let path = self.artifacts.component_file(component).await;
                tokio::fs::File::open(path.map_err(io::Error::other)?).await?
            }
            opened => opened?,
        };
        Ok(Box::new(file))
    }

    async fn remove_components(&self, components: Vec<ComponentDigest>) -> io::Result<()> {
        for component in components {
            self.artifacts.remove(component).await?;
        }
        Ok(())
    }
}

/// A panic of the host inside an attempt ends the attempt, not the host.
fn broken<T>(panic: &(dyn Any + Send), job: JobId) -> AttemptReport<T> {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    error!(job.id = %job, "the sandbox panicked while it ran job `{job}`: {message}");
    AttemptReport::failed("the host failed while it ran the handler".to_owned())
}

mod reserved;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod reuse_tests;
#[cfg(test)]
mod tests;
