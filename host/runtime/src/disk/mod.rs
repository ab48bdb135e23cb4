//! The file systems of handlers: a network volume that persists, and scratch space that is deleted
//! with the instance. A handler whose endpoint has neither has no files at all, and costs
//! nothing here.
//!
//! [`Disks`] has all mounts of the host. A [`mount`] is one directory with its [`space`]; a
//! [`node`] is a file or directory that a handler opened by a [`path`]; [`io_limits`] decides when
//! an operation may run; [`locks`] are directories that end with their instance; [`transfers`]
//! serve the files to callers outside of handlers; [`recent`] are the volumes that stay open
//! between two uses; [`leftovers`] are the directories that earlier processes left behind, and
//! [`unused`] counts the volumes that no job has used since the start. Handlers call these through
//! `host_fns::filesystem`.

mod data_disk;
mod io_limits;
mod leftovers;
mod listing;
mod locks;
mod marks;
mod mount;
mod node;
mod path;
mod recent;
mod removal;
mod space;
mod streams;
mod transfers;
mod unused;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::deploy::volume::{MountPath, SCRATCH_PATH, Volume, gigabytes};
use gristmill_core::id::{OwnerId, VolumeId};
use gristmill_core::runtime::VolumeDirectories;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::time::{Clock as _, SystemClock};
use parking_lot::Mutex;
use rustix::fs::Mode;
use rustix::io::Errno;
use tokio::sync::OnceCell;
use tracing::error;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

use crate::files::{blocking, create_private_dir};

use self::data_disk::DataDisk;
use self::io_limits::{IoLimits, JobIoLimits};
use self::leftovers::Leftovers;
pub use self::leftovers::Wiping;
pub(crate) use self::listing::Listing;
use self::mount::{Mount, OpenMount, wipe};
pub(crate) use self::node::{Node, OpenMode};
use self::recent::RecentVolumes;
use self::removal::REMOVED;
pub(crate) use self::streams::{PIECE_BYTES, ReadStream, WriteAt, WriteStream};
use self::unused::UnusedVolumes;

/// Below the data directory: one directory for each network volume.
const VOLUMES: &str = "volumes";

/// Below the data directory: a directory of each process, with one directory for each instance that
/// has scratch space.
const SCRATCH: &str = "scratch";

/// The directories that handlers see, of all jobs.
#[derive(Debug)]
pub(crate) struct Disks {
    volumes_dir: PathBuf,
    /// The directory with one directory for each process.
    scratch_dir: PathBuf,
    /// The directory of this process, created with its first scratch space, so that it contains no
    /// leftovers.
    own_scratch_dir: OnceCell<PathBuf>,
    leftovers: Mutex<Leftovers>,
    /// Volumes that were used since the start.
    volumes: Arc<Mutex<UsedVolumes>>,
    unused_volumes: Arc<UnusedVolumes>,
    scratches: AtomicU64,
    io_limits: IoLimits,
    disk: DataDisk,
}

/// A volume, once it is counted.
type Counted = Arc<OnceCell<Arc<Mount>>>;

/// Most removed volumes that are remembered, some 100 bytes for each.
const REMOVED_MAX: usize = 10_000;

/// The volumes that were used since the start, so that each is counted once: some 400 bytes for
/// each. Their directories are open while they are in use, and those of [some others](recent).
#[derive(Debug, Default)]
struct UsedVolumes {
    /// `None` for a removed volume: a job that began before its removal must not create it again.
    volumes: HashMap<VolumeId, Option<Counted>>,
    /// The removed ones, the oldest first.
    removed: VecDeque<VolumeId>,
    recent: RecentVolumes,
}

impl UsedVolumes {
    /// The volume, unless it was removed.
    fn used(&mut self, id: &VolumeId) -> io::Result<Counted> {
        self.recent.touch(id);
        let volume = self.volumes.entry(id.clone()).or_insert_with(|| Some(Counted::default()));
        Ok(volume.clone().ok_or(io::ErrorKind::NotFound)?)
    }

    /// Removes a volume. Returns it if it was used.
    fn remove(&mut self, id: &VolumeId) -> Option<Counted> {
        let known = self.volumes.insert(id.clone(), None);
        if !matches!(known, Some(None)) {
            self.removed.push_back(id.clone());
        }
        if self.removed.len() > REMOVED_MAX
            && let Some(oldest) = self.removed.pop_front()
        {
            self.volumes.remove(&oldest);
        }
        known.flatten()
    }

    fn is_removed(&self, id: &VolumeId) -> bool {
        matches!(self.volumes.get(id), Some(None))
    }

    /// Keeps the directory of a volume open for its next use, unless the volume was removed.
    /// Returns directories to close.
    fn keep_open(&mut self, id: &VolumeId, root: Arc<File>) -> Vec<Arc<File>> {
        if self.is_removed(id) { vec![root] } else { self.recent.keep(id, root) }
    }
}

/// The mounts of one instance.
#[derive(Debug)]
pub(crate) struct Files {
    mounts: Vec<(OpenMount, String)>,
    io_limits: Arc<JobIoLimits>,
}

impl Disks {
    /// Finds the names of the directories that earlier processes left behind: scratch space, and
    /// deleted volumes. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn open(
        data_dir: &Path,
        disk_space: Arc<DiskSpaceGauge>,
        tenancy: Tenancy,
    ) -> io::Result<Self> {
        let (volumes_dir, scratch_dir) = (data_dir.join(VOLUMES), data_dir.join(SCRATCH));
        let mut leftovers = Leftovers::default();
        leftovers.find(&scratch_dir, |_| true)?;
        leftovers.find(&volumes_dir, |name| name.ends_with(REMOVED.as_bytes()))?;
        create_private_dir(data_dir)?;
        let disk = DataDisk::of(data_dir, disk_space)?;
        let unused_volumes = UnusedVolumes::new(volumes_dir.clone(), disk.clone());
        Ok(Self {
            volumes_dir,
            scratch_dir,
            own_scratch_dir: OnceCell::new(),
            leftovers: Mutex::new(leftovers),
            volumes: Arc::default(),
            unused_volumes: Arc::new(unused_volumes),
            scratches: AtomicU64::new(0),
            io_limits: IoLimits::new(tenancy),
            disk,
        })
    }

    /// Removes these directories on a separate thread, until the guard is dropped. A second call
    /// has nothing to remove.
    ///
    /// # Errors
    /// When no thread can be started; the next start removes them then.
    pub(crate) fn wipe_leftovers(&self) -> io::Result<Wiping> {
        std::mem::take(&mut *self.leftovers.lock()).wipe(self.disk.disk_space().clone())
    }

    /// Adds the volumes of an earlier process, which count in the disk shares of their owners.
    pub(crate) fn restore_volumes<'a>(&self, volumes: impl IntoIterator<Item = &'a Volume>) {
        self.unused_volumes.add(volumes);
    }

    /// Counts the volumes that no job has used, in the disk shares of their owners.
    pub(crate) fn count_volumes(&self) -> impl Future<Output = ()> + Send + use<> {
        self.unused_volumes.clone().count_all()
    }

    /// Makes the files of this deployment ready, so that an attempt does not wait for a count of
    /// files: counts the deployment's volume once after a start, and waits for the count of the
    /// owner's other volumes if its files could not grow before that. Errors are left to
    /// [`files`](Self::files), whose caller has a job to report them to.
    pub(crate) async fn prepare(&self, deployment: &Deployment) {
        if let Some(volume) = &deployment.volume {
            let _ = self.counted_volume(volume).await;
        }
        if deployment.template.container_disk_gb > 0 {
            self.unused_volumes.prepare_growth(&deployment.endpoint.owner).await;
        }
    }

    /// The mount of a volume, when the owner's volumes are counted or the wait for that is over.
    async fn counted_volume(&self, volume: &Volume) -> io::Result<OpenMount> {
        let mount = self.volume(volume).await?;
        self.unused_volumes.prepare_growth(&volume.owner).await;
        Ok(mount)
    }

    /// The mounts of an attempt of this deployment; `None` when it has none. Quick after
    /// [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// One sentence for the person who submitted the job.
    pub(crate) async fn files(&self, deployment: &Deployment) -> Result<Option<Files>, String> {
        let mut mounts = Vec::new();
        if let Some(id) = &deployment.endpoint.network_volume {
            let volume = deployment.volume.as_ref();
            let volume = volume.ok_or_else(|| format!("network volume `{id}` does not exist"))?;
            let path = MountPath::parse(&deployment.template.volume_mount_path)
                .map_err(|error| format!("the template's volumeMountPath must be {error}"))?;
            let mount = self.volume(volume).await.map_err(|error| {
                error!("network volume `{id}` cannot be used: {error}");
                format!("network volume `{id}` cannot be used: {error}")
            })?;
            mounts.push((mount, path.as_str().to_owned()));
        }
        let Endpoint { owner, id, .. } = &*deployment.endpoint;
        let scratch_gb = deployment.template.container_disk_gb;
        if scratch_gb > 0 {
            let mount = self.scratch(owner, gigabytes(scratch_gb)).await.map_err(|error| {
                error!("cannot create scratch space: {error}");
                format!("cannot create scratch space: {error}")
            })?;
            mounts.push((mount, SCRATCH_PATH.to_owned()));
        }
        Ok((!mounts.is_empty()).then(|| Files { mounts, io_limits: self.io_limits.job(owner, id) }))
    }

    /// One use of a volume, whose mount is the same for all uses. The first call counts the
    /// volume's files, and completes the count even if its future is dropped.
    async fn volume(&self, volume: &Volume) -> io::Result<OpenMount> {
        let cell = self.volumes.lock().used(&volume.id)?;
        let mount = match cell.get().and_then(Mount::if_open) {
            Some(mount) => mount,
            None => {
                let opening = tokio::spawn(self.open_volume(volume, cell));
                opening.await.map_err(io::Error::other)??
            }
        };
        mount.space.set_max(volume.bytes_max());
        Ok(mount)
    }

    /// Opens the directory of a volume, and counts the volume's files once.
    fn open_volume(
        &self,
        volume: &Volume,
        cell: Counted,
    ) -> impl Future<Output = io::Result<OpenMount>> + Send + use<> {
        let (id, bytes_max) = (volume.id.clone(), volume.bytes_max());
        let path = self.volumes_dir.join(id.as_str());
        let (disk, owner) = (self.disk.clone(), volume.owner.clone());
        let (unused, volumes) = (self.unused_volumes.clone(), self.volumes.clone());
        async move {
            let count = || {
                let (id, volumes) = (id.clone(), volumes.clone());
                blocking(move || {
                    // A removal waits for the end of this, or happened before.
                    if volumes.lock().is_removed(&id) {
                        return Err(io::ErrorKind::NotFound.into());
                    }
                    create_private_dir(&path)?;
                    let account = disk.account_at(&path, &owner)?;
                    let open = Mount::volume(&path, bytes_max, account)?;
                    keep_open(&volumes, &id, &open);
                    Ok(open.mount().clone())
                })
            };
            let mount = cell.get_or_try_init(count).await.cloned()?;
            unused.remove(&id);
            blocking(move || {
                let open = mount.open()?;
                keep_open(&volumes, &id, &open);
                Ok(open)
            })
            .await
        }
    }

    /// Creates a link to `directory` in place of the volume's own directory.
    ///
    /// # Errors
    /// Those of the file system; one is that the volume exists.
    pub(crate) fn assign_volume_directory(
        &self,
        id: &VolumeId,
        directory: &Path,
    ) -> io::Result<()> {
        create_private_dir(&self.volumes_dir)?;
        std::os::unix::fs::symlink(directory.canonicalize()?, self.volumes_dir.join(id.as_str()))
    }

    async fn scratch(&self, owner: &OwnerId, bytes_max: u64) -> io::Result<OpenMount> {
        let number = self.scratches.fetch_add(1, Ordering::Relaxed);
        let make = || {
            let scratch_dir = self.scratch_dir.clone();
            blocking(move || new_directory(&scratch_dir))
        };
        let own = self.own_scratch_dir.get_or_try_init(make).await?;
        let (disk, owner, own) = (self.disk.clone(), owner.clone(), own.clone());
        let create = move || {
            let account = disk.account_at(&own, &owner)?;
            Mount::scratch(own.join(number.to_string()), bytes_max, account)
        };
        blocking(create).await
    }

    /// Continues the removals of volumes that a crash interrupted, of those without a record. To be
    /// called before any volume is used. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn resume_removals(&self, has_record: impl Fn(&VolumeId) -> bool) -> io::Result<()> {
        let removed = removal::resume(&self.volumes_dir, has_record)?;
        self.leftovers.lock().add(removed);
        Ok(())
    }
}

#[async_trait]
impl VolumeDirectories for Disks {
    async fn mark_removal(&self, id: &VolumeId) -> io::Result<()> {
        let (volumes_dir, id) = (self.volumes_dir.clone(), id.clone());
        blocking(move || removal::mark(&volumes_dir, &id)).await
    }

    async fn unmark_removal(&self, id: &VolumeId) -> io::Result<()> {
        let (volumes_dir, id) = (self.volumes_dir.clone(), id.clone());
        blocking(move || removal::unmark(&volumes_dir, &id)).await
    }

    /// Removes the name of the directory at once, and the content when no job uses it any more.
    async fn remove_volume(&self, id: &VolumeId) -> io::Result<()> {
        let cell = self.volumes.lock().remove(id);
        // No use keeps it open from now on. It is closed without the lock.
        let root = self.volumes.lock().recent.remove(id);
        drop(root);
        self.unused_volumes.remove(id);
        // The first use may be on its way, and creates the directory.
        let mount = match cell {
            Some(cell) => {
                let unused = async || Err(io::Error::from(io::ErrorKind::NotFound));
                cell.get_or_try_init(unused).await.ok().cloned()
            }
            None => None,
        };
        let (volumes_dir, id) = (self.volumes_dir.clone(), id.clone());
        let remove = move || {
            if let Some(removed) = removal::remove(&volumes_dir, &id)? {
                match mount {
                    Some(mount) => mount.wipe_at_end(removed),
                    None => wipe(&removed),
                }
            }
            Ok(())
        };
        blocking(remove).await
    }
}

/// Keeps the directory of a mount open for its next use. Closes others without the lock.
fn keep_open(volumes: &Mutex<UsedVolumes>, id: &VolumeId, open: &OpenMount) {
    let closed = volumes.lock().keep_open(id, open.root.clone());
    drop(closed);
}

/// Creates a directory in `parent`, under a name that no other process has used: the previous
/// process may still be removing its own directories, by name.
fn new_directory(parent: &Path) -> io::Result<PathBuf> {
    create_private_dir(parent)?;
    loop {
        // In containers all processes may have the same id.
        let name = format!("{}-{}", std::process::id(), SystemClock.now().as_millis());
        let path = parent.join(name);
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => return Ok(path),
            Err(Errno::EXIST) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Files {
    /// Whether an operation of the handler found no space.
    pub(crate) fn was_full(&self) -> bool {
        self.io_limits.was_full()
    }

    /// The next job of the same instance begins: [`was_full`](Self::was_full) is about this job.
    pub(crate) fn begin(&self) {
        self.io_limits.begin();
    }

    /// The roots of all mounts, with the paths where a handler finds them.
    ///
    /// # Errors
    /// [`ErrorCode::Quota`] when the job has too many descriptors.
    pub(crate) fn roots(&self) -> impl Iterator<Item = Result<(Node, String), ErrorCode>> {
        self.mounts.iter().map(|(mount, path)| {
            let slot = self.io_limits.slot()?;
            Ok((Node::root(mount.clone(), self.io_limits.clone(), slot), path.clone()))
        })
    }
}

#[cfg(test)]
mod tests;
