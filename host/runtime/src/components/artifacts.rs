//! Uploaded components on disk and in memory. `components/<digest>.wasm` is the uploaded component;
//! `artifacts/<engine>/<digest>.cwasm` is the machine code compiled from it, which can be compiled
//! again at any time. Machine code runs with the host's rights, so the digest of each compiled file
//! is recorded elsewhere ([`ArtifactRecords`]), and a file with another digest is compiled again
//! instead of loaded.
//!
//! Where hosts share a [depot](crate::components::depot), an upload is in it before the record
//! exists, and a component that another host has added is fetched from it by its first job.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_core::catalog::{ArtifactDigest, Component};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::endpoint::Metering;
use gristmill_core::depot::Depot;
use gristmill_core::id::OwnerId;
use gristmill_core::limits::{COMPONENT_BYTES_MAX, UPLOADS_WAITING_MAX};
use gristmill_core::metrics::instruments::DurationTotals;
use gristmill_core::runtime::{AddComponentError, AddedComponent, EndUpload, is_no_space};
use gristmill_core::sharing::disk_space::{DiskSpaceGauge, Shortage};
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::time::Timestamp;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::runtime::Handle;
use tracing::{info, warn};
use wasmtime::Engine;
use wasmtime::component::Component as CompiledComponent;

use crate::compile::component::{
    Prepared, RejectedComponent, causes, check_count, check_preamble, names, prepare,
};
use crate::compile::order::{CompileTurn, Purpose, TooManyUploads};
use crate::compile::process::{CompileError, CompileTask, Compiled, Compiler, Finished};
use crate::components::depot::SharedComponents;
use crate::components::metadata::metadata_bytes;
use crate::components::records::ArtifactRecords;
use crate::components::staging::{StagedFile, StagedTotal};
use crate::engine::{Engines, RunEngine, compile_engine, engine_key};
use crate::files::{self, Artifact, Unfinished, blocking};

/// Most components that are kept loaded in memory. Loading another one takes 0.2 to 4 ms.
const LOADED_MAX: usize = 256;

/// Most metadata in the compiled file of one component, in bytes (4 MiB). Python has 570 KB.
const METADATA_BYTES_MAX: u32 = 4 << 20;

/// Most metadata of all components that are kept loaded, in bytes (64 MiB). A byte of metadata
/// takes about 10 bytes of memory. The code and data of these components are mapped from their
/// files, so the kernel can drop them and read them again.
const LOADED_METADATA_BYTES_MAX: u64 = 64 << 20;

/// Why an upload was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddError {
    /// It cannot run here; the uploader must change it.
    #[error(transparent)]
    Rejected(#[from] RejectedComponent),
    /// It is larger than [`COMPONENT_BYTES_MAX`].
    #[error("component has {bytes} bytes, limit: {COMPONENT_BYTES_MAX} bytes")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Its owner has as many uploads that wait to be compiled as it may have.
    #[error("{UPLOADS_WAITING_MAX} uploads of this owner wait to be compiled, which is the limit")]
    TooManyWaiting,
    /// The host could not check or compile it.
    #[error("cannot compile the component: {0}")]
    Compile(String),
    /// The host could not store it.
    #[error("cannot store the component: {0}")]
    Storage(#[from] io::Error),
}

/// Why a stored component cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// There is no record of it.
    #[error("component `{0}` is not stored")]
    Unknown(ComponentDigest),
    /// The file with the uploaded bytes is missing or has other content.
    #[error("the stored file of component `{0}` is missing or damaged")]
    Damaged(ComponentDigest),
    /// An earlier version of the host accepted it, but this version does not.
    #[error(transparent)]
    Rejected(#[from] RejectedComponent),
    /// Anything that is the host's fault.
    #[error("cannot load the component: {0}")]
    Host(String),
}

/// A component that is ready to be instantiated.
pub(crate) struct Loaded {
    pub(crate) component: Prepared,
    pub(crate) engine: Arc<RunEngine>,
    /// Bytes of the metadata in its compiled file.
    metadata_bytes: u64,
}

/// The loaded components, by their digests and meterings.
type LoadedComponents = Cache<(ComponentDigest, Metering), Arc<Loaded>, ByMetadata>;

/// No loaded components, and room for [`LOADED_MAX`] ones with [`LOADED_METADATA_BYTES_MAX`]
/// together.
fn loaded_components() -> LoadedComponents {
    // The cache divides its room among up to eight parts, and each has room for the largest
    // component.
    Cache::with_weighter(LOADED_MAX, LOADED_METADATA_BYTES_MAX, ByMetadata)
}

/// A component counts as its metadata, and as one of [`LOADED_MAX`] components at least.
#[derive(Debug, Clone)]
struct ByMetadata;

impl Weighter<(ComponentDigest, Metering), Arc<Loaded>> for ByMetadata {
    fn weight(&self, _key: &(ComponentDigest, Metering), loaded: &Arc<Loaded>) -> u64 {
        loaded.metadata_bytes.max(LOADED_METADATA_BYTES_MAX / LOADED_MAX as u64)
    }
}

/// All components of this host.
#[derive(Debug)]
pub(crate) struct Artifacts {
    components_dir: PathBuf,
    artifacts_dir: PathBuf,
    engines: Engines,
    compiler: Compiler,
    records: Arc<dyn ArtifactRecords>,
    /// The components of all hosts that share a database.
    shared: Option<SharedComponents>,
    loaded: LoadedComponents,
    staged: StagedTotal,
    /// The number of guards that keep the files of each component.
    held: Mutex<HashMap<ComponentDigest, u32>>,
}

/// Keeps the files of a component that has no record yet. If there is still no record when the last
/// guard is dropped, the files are removed: their upload was refused or abandoned.
#[derive(Debug)]
struct FileGuard {
    artifacts: Arc<Artifacts>,
    digest: ComponentDigest,
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        let Self { artifacts, digest } = self;
        if !artifacts.release_file_guard(*digest) || artifacts.records.find(*digest).is_some() {
            return;
        }
        // Without a runtime the host is ending: its next start removes files without a record.
        let Ok(runtime) = Handle::try_current() else { return };
        let (artifacts, digest) = (artifacts.clone(), *digest);
        runtime.spawn(async move {
            if let Err(error) = artifacts.remove(digest).await {
                warn!(%error, "the files of component `{digest}` stay until the next start: {error}");
            }
        });
    }
}

impl Artifacts {
    /// Opens the directories. Removes compiled files that no engine of this process can load, and
    /// components without a record: an earlier process ended after it had stored the files and
    /// before it wrote the record.
    ///
    /// # Errors
    /// Those of the file system and of wasmtime.
    pub(crate) fn open(
        data_dir: &Path,
        engines: Engines,
        compiler: Compiler,
        records: Arc<dyn ArtifactRecords>,
        depot: Option<Arc<dyn Depot>>,
        (disk_space, tenancy): (Arc<DiskSpaceGauge>, Tenancy),
    ) -> wasmtime::Result<Self> {
        let components_dir = data_dir.join("components");
        let artifacts_dir = data_dir.join("artifacts");
        files::create_private_dir(&components_dir)?;
        files::create_private_dir(&artifacts_dir)?;
        files::remove_temporaries(&components_dir)?;
        let keys = [Metering::Fuel, Metering::Epoch]
            .map(|metering| Ok(engine_key(metering, &compile_engine(engines.kind(metering))?)));
        let keys = keys.into_iter().collect::<wasmtime::Result<Vec<_>>>()?;
        for entry in fs::read_dir(&artifacts_dir)? {
            let path = entry?.path();
            if keys.iter().all(|key| !path.ends_with(key)) {
                info!("removing compiled components of another engine: {}", path.display());
                fs::remove_dir_all(&path)?;
            }
        }
        for key in &keys {
            files::create_private_dir(&artifacts_dir.join(key))?;
            files::remove_temporaries(&artifacts_dir.join(key))?;
        }
        let is_recorded = |digest| records.find(digest).is_some();
        let mut orphans = files::remove_unless(&components_dir, ".wasm", is_recorded)?;
        for key in &keys {
            orphans += files::remove_unless(&artifacts_dir.join(key), ".cwasm", is_recorded)?;
        }
        if orphans > 0 {
            info!("removed {orphans} files of components that have no record");
        }
        Ok(Self {
            components_dir,
            artifacts_dir,
            engines,
            compiler,
            records,
            shared: depot.map(SharedComponents::new),
            loaded: loaded_components(),
            staged: StagedTotal::on(disk_space, tenancy),
            held: Mutex::default(),
        })
    }

    /// Times of the compiles that succeeded.
    pub(crate) fn compiles(&self) -> DurationTotals {
        self.compiler.durations()
    }

    /// The turns to compile.
    #[cfg(test)]
    pub(crate) fn compile_turns(&self) -> &crate::compile::order::CompileTurns {
        self.compiler.turns()
    }

    /// The engines.
    pub(crate) fn engines(&self) -> &Engines {
        &self.engines
    }

    /// A write of an upload without room ends other uploads by this function.
    pub(crate) fn end_uploads_by(&self, end_upload: EndUpload) {
        self.staged.end_uploads_by(end_upload);
    }

    /// A file for an upload. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn stage(&self, owner: &OwnerId) -> io::Result<Arc<StagedFile>> {
        StagedFile::create(&self.components_dir, self.staged.of(owner)).map(Arc::new)
    }

    /// Checks, stores and compiles an uploaded component, for the metered engine. A component that
    /// is stored already is not compiled again. Large components take seconds, and components are
    /// compiled one at a time, in turns of their owners. The returned guard keeps the files until
    /// there is a record.
    ///
    /// # Errors
    /// [`AddError`]; nothing is stored then, and the upload can be added again.
    pub(crate) async fn add(
        self: &Arc<Self>,
        upload: Arc<StagedFile>,
        owner: &OwnerId,
        uploaded_at: Timestamp,
    ) -> Result<AddedComponent, AddError> {
        let size = upload.len();
        if size > COMPONENT_BYTES_MAX as u64 {
            return Err(AddError::TooLarge { bytes: size });
        }
        check_preamble(&upload.preamble())?;
        let digest = upload.digest();
        let hold = self.hold(digest);
        // Its record keeps it in the depot, and the hold does when the record is deleted meanwhile.
        let is_recorded = self.records.find(digest).is_some();
        let path = self.component_path(digest);
        let turn = self.turn_of_upload(digest, owner).await?;
        // The file may get its name after the caller's future was dropped, so the guard lives until
        // then. The upload counts as staged until it is compiled: uploads that wait for their turn
        // are bounded, too.
        let (keeping, named) = (hold.clone(), upload.clone());
        blocking(move || {
            let _keeping = keeping;
            named.keep_as(&path)
        })
        .await?;
        let component = self.add_stored(&hold, size, uploaded_at, (owner, turn)).await?;
        if let Some(shared) = self.shared.as_ref().filter(|_| !is_recorded) {
            shared.put(digest, &self.component_path(digest)).await?;
        }
        Ok(AddedComponent { component, hold: Box::new(hold) })
    }

    fn hold(self: &Arc<Self>, digest: ComponentDigest) -> Arc<FileGuard> {
        *self.held.lock().entry(digest).or_default() += 1;
        Arc::new(FileGuard { artifacts: self.clone(), digest })
    }

    /// Ends one guard. Returns whether it was the last one.
    fn release_file_guard(&self, digest: ComponentDigest) -> bool {
        let mut held = self.held.lock();
        let Some(count) = held.get_mut(&digest) else { return true };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        held.remove(&digest);
        true
    }

    /// A turn to compile an upload; none if the component is compiled already.
    async fn turn_of_upload(
        &self,
        digest: ComponentDigest,
        owner: &OwnerId,
    ) -> Result<Option<CompileTurn>, AddError> {
        let engine = self.engine(Metering::Fuel).map_err(AddError::Compile)?;
        let known = self.records.find(digest);
        if known.is_some_and(|known| known.artifacts.contains_key(&engine.key)) {
            return Ok(None);
        }
        Ok(Some(self.upload_turn(owner).await?))
    }

    async fn upload_turn(&self, owner: &OwnerId) -> Result<CompileTurn, AddError> {
        let turn = self.compiler.turns().join(owner, Purpose::Upload);
        Ok(turn.map_err(|TooManyUploads| AddError::TooManyWaiting)?.await)
    }

    async fn add_stored(
        &self,
        hold: &Arc<FileGuard>,
        size: u64,
        uploaded_at: Timestamp,
        (owner, turn): (&OwnerId, Option<CompileTurn>),
    ) -> Result<Component, AddError> {
        let digest = hold.digest;
        let known = self.records.find(digest);
        let engine = self.engine(Metering::Fuel).map_err(AddError::Compile)?;
        if let Some(known) = &known
            && known.artifacts.contains_key(&engine.key)
        {
            return Ok(Component::clone(known));
        }
        let task = self.task(digest, Metering::Fuel, &engine.key);
        let turn = match turn {
            Some(turn) => turn,
            // Its record was deleted meanwhile.
            None => self.upload_turn(owner).await?,
        };
        let (compiled, artifact, compiled_bytes) =
            self.compile_and_verify(hold, task, engine.clone(), turn).await?;
        let mut artifacts =
            known.as_ref().map_or_else(Default::default, |known| known.artifacts.clone());
        artifacts.insert(engine.key.clone(), artifact);
        Ok(Component {
            digest,
            bytes: size,
            imports: compiled.info.imports,
            exports: compiled.info.exports,
            uploaded_at,
            compile_ms: u64::try_from(compiled.took.as_millis()).unwrap_or(u64::MAX),
            artifacts,
            compiled_bytes,
            producers: compiled.info.producers,
            input_schema: compiled.info.input_schema,
            owners: known.map_or_else(Default::default, |known| known.owners.clone()),
        })
    }

    /// Compiles the component and loads the result: only loading shows whether a sandbox has room
    /// for all of its instances and functions. Without this check each of its jobs would fail
    /// instead of the upload. Ends the turn after the load, so that uploads are loaded one at a
    /// time.
    async fn compile_and_verify(
        &self,
        hold: &Arc<FileGuard>,
        task: CompileTask,
        engine: Arc<RunEngine>,
        turn: CompileTurn,
    ) -> Result<(Compiled, ArtifactDigest, u64), AddError> {
        let Finished { compiled, artifact } = self.compiler.compile(task, &turn).await?;
        let (artifact, compiled_bytes) = finish(artifact, hold.clone()).await?;
        let digest = artifact.digest.clone();
        // The load goes on when the caller's future is dropped, so it keeps the turn itself.
        let loading = tokio::task::spawn_blocking(move || {
            let verified = load_file(&artifact, engine).map(drop);
            drop(turn);
            verified
        });
        match loading.await.map_err(io::Error::other)? {
            Ok(()) => Ok((compiled, digest, compiled_bytes)),
            Err(LoadError::Rejected(reason)) => Err(reason.into()),
            Err(error) => Err(RejectedComponent::DoesNotFit(error.to_string()).into()),
        }
    }

    /// The component, ready to be instantiated: from memory, else from its compiled file, else
    /// compiled again. Concurrent callers for one component share one load.
    pub(crate) async fn load(
        self: &Arc<Self>,
        digest: ComponentDigest,
        metering: Metering,
        owner: &OwnerId,
    ) -> Result<Arc<Loaded>, LoadError> {
        let key = (digest, metering);
        loop {
            let loaded = match self.loaded.get(&key) {
                Some(loaded) => loaded,
                None => {
                    let reading = Box::pin(self.read(digest, metering, owner));
                    self.loaded.get_or_insert_async(&key, reading).await?
                }
            };
            if !self.engines.is_outdated(&loaded.engine) {
                return Ok(loaded);
            }
            self.loaded.retain(|_, loaded| !self.engines.is_outdated(&loaded.engine));
        }
    }

    /// Removes a component that has no record, in memory, on disk and in the depot, unless it is
    /// being added. Jobs that run it continue.
    pub(crate) async fn remove(self: &Arc<Self>, digest: ComponentDigest) -> io::Result<()> {
        let artifacts = self.clone();
        blocking(move || artifacts.remove_unneeded(digest)).await?;
        match &self.shared {
            Some(shared) => shared.remove(digest, || self.is_needed(digest)).await,
            None => Ok(()),
        }
    }

    /// Removes the files of all components that have no record and are not being added: other hosts
    /// have deleted these components. Jobs that run them continue.
    pub(crate) async fn remove_orphans(self: &Arc<Self>) -> io::Result<()> {
        let artifacts = self.clone();
        blocking(move || {
            let mut found = files::digests(&artifacts.components_dir, ".wasm")?;
            for entry in fs::read_dir(&artifacts.artifacts_dir)? {
                found.extend(files::digests(&entry?.path(), ".cwasm")?);
            }
            found.sort_unstable();
            found.dedup();
            found.into_iter().try_for_each(|digest| artifacts.remove_unneeded(digest))
        })
        .await
    }

    /// Removes components without a record from the depot: a host has ended after it had put them
    /// there, and before it wrote the record.
    pub(crate) async fn sweep_depot(&self) -> io::Result<()> {
        match &self.shared {
            Some(shared) => shared.sweep(|digest| self.is_needed(digest)).await,
            None => Ok(()),
        }
    }

    /// Whether a component has a record, or is being added.
    fn is_needed(&self, digest: ComponentDigest) -> bool {
        self.held.lock().contains_key(&digest) || self.records.find(digest).is_some()
    }

    /// The file with the bytes of a component, fetched from the depot if it is not here or damaged.
    ///
    /// # Errors
    /// [`LoadError::Damaged`] when the component is not stored as a whole; [`LoadError::Host`] for
    /// a failure of the disk or the depot.
    pub(crate) async fn component_file(
        &self,
        digest: ComponentDigest,
    ) -> Result<PathBuf, LoadError> {
        let path = self.component_path(digest);
        let stored = path.clone();
        let found = blocking(move || files::digest(&stored)).await.map_err(host_error)?;
        if found == Some(digest) {
            return Ok(path);
        }
        let Some(shared) = &self.shared else { return Err(LoadError::Damaged(digest)) };
        let bytes = shared.fetch(digest, &path).await.map_err(host_error)?;
        self.staged.grant(bytes.ok_or(LoadError::Damaged(digest))?);
        Ok(path)
    }

    /// The same, blocking on the disk.
    fn remove_unneeded(&self, digest: ComponentDigest) -> io::Result<()> {
        {
            // No upload begins to add it meanwhile. An upload drops its guard only after the record
            // is written, so this function sees the guard, or the record.
            let held = self.held.lock();
            if held.contains_key(&digest) || self.records.find(digest).is_some() {
                return Ok(());
            }
            for entry in fs::read_dir(&self.artifacts_dir)? {
                files::remove(&entry?.path().join(format!("{digest}.cwasm")))?;
            }
            files::remove(&self.component_path(digest))?;
        }
        for metering in Metering::ALL {
            self.loaded.remove(&(digest, metering));
        }
        Ok(())
    }

    async fn read(
        self: &Arc<Self>,
        digest: ComponentDigest,
        metering: Metering,
        owner: &OwnerId,
    ) -> Result<Arc<Loaded>, LoadError> {
        let record = self.records.find(digest).ok_or(LoadError::Unknown(digest))?;
        let engine = self.engine(metering).map_err(LoadError::Host)?;
        let path = self.task(digest, metering, &engine.key).artifact;
        let expected = record.artifacts.get(&engine.key).cloned();
        let found = blocking(move || Artifact::open(&path)).await.map_err(host_error)?;
        let artifact = match (found, expected) {
            (Some(found), Some(expected)) if found.digest == expected => found,
            (found, expected) => {
                if expected.is_some() && found.is_some() {
                    warn!(
                        "compiled file of component `{digest}` is not the recorded one; recompiling"
                    );
                }
                self.compile_again(digest, metering, &engine.key, owner).await?
            }
        };
        let loaded = tokio::task::spawn_blocking(move || load_file(&artifact, engine));
        loaded.await.map_err(host_error)?.map(Arc::new)
    }

    /// Compiles a stored component for an engine, and records the compiled file's digest.
    async fn compile_again(
        self: &Arc<Self>,
        digest: ComponentDigest,
        metering: Metering,
        key: &str,
        owner: &OwnerId,
    ) -> Result<Artifact, LoadError> {
        // The record may be deleted during the compile: then the new file is removed with the hold.
        let hold = self.hold(digest);
        let task = self.task(digest, metering, key);
        self.component_file(digest).await?;
        let turn = self.compiler.turns().join(owner, Purpose::Job);
        let turn = turn.map_err(|TooManyUploads| host_error("too many components wait"))?.await;
        let compiling = self.compiler.compile(task, &turn).await;
        let Finished { compiled, artifact } = compiling.map_err(|error| match error {
            CompileError::Rejected(reason) => reason.into(),
            CompileError::Io(_) | CompileError::NoReport(_) => host_error(error),
        })?;
        info!(
            compile_ms = compiled.took.as_millis(),
            "compiled component `{digest}` for engine `{key}`"
        );
        let (artifact, bytes) = finish(artifact, hold).await.map_err(host_error)?;
        if let Err(error) = self.records.record(digest, key, artifact.digest.clone(), bytes).await {
            warn!("component `{digest}` will be compiled again after a restart: {error}");
        }
        Ok(artifact)
    }

    fn engine(&self, metering: Metering) -> Result<Arc<RunEngine>, String> {
        self.engines.get(metering).map_err(|error| causes(&error))
    }

    /// Bytes of all compiled files of a component. Blocks on the disk.
    fn compiled_bytes(&self, digest: ComponentDigest) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.artifacts_dir)? {
            match fs::metadata(entry?.path().join(format!("{digest}.cwasm"))) {
                Ok(metadata) => bytes += metadata.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    pub(crate) fn component_path(&self, digest: ComponentDigest) -> PathBuf {
        self.components_dir.join(format!("{digest}.wasm"))
    }

    fn task(&self, digest: ComponentDigest, metering: Metering, key: &str) -> CompileTask {
        let artifact = self.artifacts_dir.join(key).join(format!("{digest}.cwasm"));
        let kind = self.engines.kind(metering);
        CompileTask { kind, component: self.component_path(digest), artifact }
    }
}

#[expect(unsafe_code, reason = "compiled code is loaded here, and nowhere else")]
fn load_file(artifact: &Artifact, engine: Arc<RunEngine>) -> Result<Loaded, LoadError> {
    let metadata_bytes = metadata_bytes(artifact.file()).map_err(host_error)?;
    let count = u32::try_from(metadata_bytes).unwrap_or(u32::MAX);
    check_count("bytes of metadata", count, METADATA_BYTES_MAX)?;
    let path = artifact.path();
    let deserialize = |engine: &Engine| {
        // SAFETY: the file was made by our compiler: its digest is the one that we recorded when it
        // was, or we have just made it. The path leads to the descriptor that was hashed, so that
        // another file of the name is not loaded. The file is in a directory that only this user
        // can write, is never changed in place, and wasmtime checks that it was made for this
        // engine. The cache of a developer's compiles is in a directory that only this user can
        // access.
        let component = unsafe { CompiledComponent::deserialize_file(engine, path) };
        component.map_err(|error| LoadError::Host(causes(&error)))
    };
    if let Some(checking) = &engine.checking {
        deserialize(checking)?;
    }
    let component = deserialize(&engine.engine)?;
    let info = names(&engine.engine, &component);
    let component = prepare(&engine.linker, &component, &info)?;
    Ok(Loaded { component, engine, metadata_bytes })
}

/// Gives a compiled file its name, and opens it. Also returns the bytes of all compiled files of
/// the component. The file may get its name after the caller's future was dropped, so the guard
/// lives until then.
async fn finish(compiled: Unfinished, hold: Arc<FileGuard>) -> io::Result<(Artifact, u64)> {
    blocking(move || {
        let path = compiled.finish()?;
        hold.artifacts.staged.grant(fs::metadata(&path)?.len());
        let artifact = Artifact::open(&path)?.ok_or(io::ErrorKind::NotFound)?;
        Ok((artifact, hold.artifacts.compiled_bytes(hold.digest)?))
    })
    .await
}

fn host_error(error: impl std::fmt::Display) -> LoadError {
    LoadError::Host(error.to_string())
}

impl From<AddError> for AddComponentError {
    fn from(error: AddError) -> Self {
        match error {
            AddError::Rejected(_) | AddError::TooLarge { .. } => Self::Rejected(error.to_string()),
            AddError::TooManyWaiting => Self::TooManyWaiting,
            AddError::Storage(error) if is_no_space(&error) => Self::NoSpace(Shortage::Bytes),
            AddError::Compile(_) | AddError::Storage(_) => Self::Failed(error.to_string()),
        }
    }
}

impl From<CompileError> for AddError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Rejected(reason) => Self::Rejected(reason),
            CompileError::Io(error) if is_no_space(&error) => Self::Storage(error),
            CompileError::Io(_) | CompileError::NoReport(_) => Self::Compile(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Pool;
    use crate::swap::SwapWatch;
    use crate::testing::guest;

    #[test]
    fn loaded_components_are_bounded_by_their_number_and_their_metadata() {
        let swap = SwapWatch::of_this_machine();
        let engines = Engines::new(1, Pool::for_this_machine(), false, swap).unwrap();
        let engine = engines.get(Metering::Fuel).unwrap();
        let echo = guest("(call $ok (local.get $input) (local.get $input_len))");
        let component = CompiledComponent::from_binary(&engine.engine, &echo).unwrap();
        let info = names(&engine.engine, &component);
        let fill = |metadata_bytes: u64| {
            let cache = loaded_components();
            for number in 0..2 * LOADED_MAX {
                let component = prepare(&engine.linker, &component, &info).unwrap();
                let loaded = Loaded { component, engine: engine.clone(), metadata_bytes };
                let digest = ComponentDigest::of(&number.to_le_bytes());
                cache.insert((digest, Metering::Fuel), Arc::new(loaded));
            }
            cache.len()
        };
        let (small, large) = (fill(1_000), fill(METADATA_BYTES_MAX.into()));
        assert!((LOADED_MAX / 2..=LOADED_MAX).contains(&small), "{small}");
        let fit = (LOADED_METADATA_BYTES_MAX / u64::from(METADATA_BYTES_MAX)) as usize;
        assert!((fit / 2..=fit).contains(&large), "{large} of {fit}");
    }
}
