//! Limits on the file operations of handlers. Operations block, so they run on separate threads,
//! and a handler waits for them as for a timer: its deadline holds, and no other task is delayed.
//!
//! **Bounds.** A job has one operation at a time; all jobs together have [`OPERATIONS_MAX`]. The
//! jobs of one endpoint have at most a quarter of them, and those of one owner three times as many
//! as are left free, so an endpoint that makes the disk write gigabytes delays only its own files.
//! Operations that change a mount run one after the other. A job may have [`SLOTS_MAX`]
//! descriptors, streams and listings, all jobs together a quarter of the files that the process may
//! open, with a share for each owner while the host has several owners; the root of a mount is none
//! of them, except for a call from outside of handlers. An operation that has begun continues after
//! its attempt was ended: it holds its permit, and its mount, until it is done. After the last
//! operation of an instance its [`locks`](super::locks) are released.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::sharing::permits::{Permit, PermitShare, Permits};
use gristmill_core::sharing::shares::Level;
use gristmill_core::sharing::tenancy::Tenancy;
use rustix::fs::Stat;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

use super::locks::Held;
use super::mount::{Mount, OpenMount};

/// Most file operations at one time.
const OPERATIONS_MAX: usize = 32;

/// Most descriptors, streams and listings of a job. A stream keeps up to 64 KiB, so all of them
/// keep up to 16 MiB.
pub(crate) const SLOTS_MAX: usize = 256;

/// Most files that handlers have open, when the process may open any number.
const OPEN_FILES_MAX: u64 = 1 << 16;

/// Files that the process may open.
pub(super) fn process_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The limits that all jobs share.
#[derive(Debug)]
pub(crate) struct IoLimits {
    operations: Permits,
    open_files: Permits,
    jobs: AtomicU64,
}

impl IoLimits {
    pub(crate) fn new(tenancy: Tenancy) -> Self {
        let files = process_files_max() / 4;
        let files = usize::try_from(files.min(OPEN_FILES_MAX)).unwrap_or(usize::MAX);
        Self {
            operations: Permits::for_work(OPERATIONS_MAX),
            open_files: Permits::new(files, 0, tenancy),
            jobs: AtomicU64::new(0),
        }
    }

    /// The limits of one job of an endpoint.
    pub(crate) fn job(&self, owner: &OwnerId, endpoint: &EndpointId) -> Arc<JobIoLimits> {
        Arc::new(JobIoLimits {
            turn: Arc::default(),
            slots: Arc::new(Semaphore::new(SLOTS_MAX)),
            operations: self.operations.share(owner, endpoint),
            open_files: self.open_files.share(owner, endpoint),
            job: AtomicU64::new(1),
            full_job: AtomicU64::new(0),
            number: self.jobs.fetch_add(1, Ordering::Relaxed),
            locked_on: OnceLock::new(),
        })
    }
}

/// The limits of one job: all of its file operations pass through here.
#[derive(Debug)]
pub(crate) struct JobIoLimits {
    turn: Arc<Mutex<()>>,
    slots: Arc<Semaphore>,
    operations: PermitShare,
    open_files: PermitShare,
    /// The number of the job that the instance runs.
    job: AtomicU64,
    /// The last job of the instance that found no space; 0: none.
    full_job: AtomicU64,
    /// Identifies the instance.
    number: u64,
    /// The volume on which it has held a lock.
    locked_on: OnceLock<OpenMount>,
}

/// A job of an instance, which may run several ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobNumber(u64);

/// The right to have a descriptor, a stream or a listing open; returned when it is dropped.
#[derive(Debug)]
pub(crate) struct IoSlot {
    _slot: OwnedSemaphorePermit,
    _open_file: Option<Permit>,
}

impl JobIoLimits {
    /// The right to have one more descriptor, stream or listing open.
    ///
    /// # Errors
    /// [`ErrorCode::Quota`] at the limit of the job.
    pub(crate) fn slot(&self) -> Result<IoSlot, ErrorCode> {
        Ok(IoSlot { _slot: one_of(&self.slots)?, _open_file: None })
    }

    /// The right to have one more file of the host open.
    ///
    /// # Errors
    /// [`ErrorCode::Quota`] at the limit of the job, of its owner's jobs, or of all jobs together.
    pub(crate) fn open_file(&self) -> Result<IoSlot, ErrorCode> {
        let slot = one_of(&self.slots)?;
        let open_file = self.open_files.try_take(0, Level::CLIENT).ok_or(ErrorCode::Quota)?;
        Ok(IoSlot { _slot: slot, _open_file: Some(open_file) })
    }

    /// The right to hold one more lock on this mount; `None` beyond the limits, and on scratch
    /// space, which ends with its instance.
    pub(crate) fn lock_slot(&self, mount: &Mount) -> Option<IoSlot> {
        if !mount.is_volume() || !mount.locks.admit(self.number) {
            return None;
        }
        self.open_file().ok()
    }

    /// The instance has created this directory on the mount, with the mark of locks.
    pub(crate) fn hold_lock(
        &self,
        mount: &OpenMount,
        stat: &Stat,
        parent: Arc<File>,
        name: &str,
        slot: IoSlot,
    ) {
        let (name, open_file) = (name.to_owned(), Box::new(slot));
        mount.locks.add(stat, Held { holder: self.number, parent, name, _open_file: open_file });
        // An instance has one volume at most.
        let _ = self.locked_on.set(mount.clone());
    }

    /// Whether an operation of the present job found no space. Operations that an earlier job of
    /// the instance began do not count, even if they end now.
    pub(crate) fn was_full(&self) -> bool {
        self.full_job.load(Ordering::Relaxed) == self.job.load(Ordering::Relaxed)
    }

    /// The next job of the same instance begins.
    pub(crate) fn begin(&self) {
        self.job.fetch_add(1, Ordering::Relaxed);
    }

    /// The job for which an operation counts that begins now.
    pub(crate) fn current_job(&self) -> JobNumber {
        JobNumber(self.job.load(Ordering::Relaxed))
    }

    /// Runs an operation of a job that does not change the space that a mount takes.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        job: JobNumber,
        operation: impl FnOnce() -> Result<T, ErrorCode> + Send + 'static,
    ) -> Result<T, ErrorCode> {
        let turn = self.turn.clone().lock_owned().await;
        self.run(job, turn, operation).await
    }

    /// Runs an operation of a job that changes the mount, alone among such operations.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        job: JobNumber,
        mount: &Mount,
        operation: impl FnOnce() -> Result<T, ErrorCode> + Send + 'static,
    ) -> Result<T, ErrorCode> {
        let turn = self.turn.clone().lock_owned().await;
        let alone = mount.change.clone().lock_owned().await;
        self.run(job, (turn, alone), operation).await
    }

    async fn run<T: Send + 'static>(
        &self,
        JobNumber(job): JobNumber,
        guards: impl Send + 'static,
        operation: impl FnOnce() -> Result<T, ErrorCode> + Send + 'static,
    ) -> Result<T, ErrorCode> {
        let permit = self.operations.acquire().await;
        let done = tokio::task::spawn_blocking(move || {
            let done = operation();
            drop((permit, guards));
            done
        });
        // It fails when the host ends before the operation has begun.
        let done = done.await.unwrap_or(Err(ErrorCode::Io));
        if matches!(done, Err(ErrorCode::InsufficientSpace)) {
            self.full_job.fetch_max(job, Ordering::Relaxed);
        }
        done
    }
}

impl Drop for JobIoLimits {
    fn drop(&mut self) {
        let holder = self.number;
        let Some(mount) = self.locked_on.take().filter(|mount| mount.locks.has(holder)) else {
            return;
        };
        // Without a runtime the host is ending: the next process releases the locks.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let alone = mount.change.clone().lock_owned().await;
            let release = move || {
                mount.locks.release(holder, &mount.space);
                drop(alone);
            };
            tokio::task::spawn_blocking(release).await
        });
    }
}

fn one_of(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ErrorCode> {
    semaphore.clone().try_acquire_owned().map_err(|_| ErrorCode::Quota)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Operations that do not end, as a sync of gigabytes for a while, of one endpoint's jobs.
    #[tokio::test]
    async fn slow_operations_of_an_endpoint_do_not_delay_another() {
        let io_limits = IoLimits::new(Tenancy::default());
        let owner = |name| OwnerId::new(name).unwrap();
        let endpoint = |name| EndpointId::new(name).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let mut ends = Vec::new();
        let mut slow = Vec::new();
        for _ in 0..2 * OPERATIONS_MAX {
            let io_limits = io_limits.job(&owner("greedy"), &endpoint("greedy"));
            let begun = begun.clone();
            let (end, is_over) = mpsc::channel::<()>();
            ends.push(end);
            slow.push(tokio::spawn(async move {
                io_limits
                    .look(io_limits.current_job(), move || {
                        begun.send(()).unwrap();
                        let _ = is_over.recv();
                        Ok(())
                    })
                    .await
            }));
        }
        for _ in 0..OPERATIONS_MAX / 4 {
            let wait = async {
                while has_begun.try_recv().is_err() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
        }
        let other = io_limits.job(&owner("other"), &endpoint("other"));
        let looking = other.look(other.current_job(), || Ok(7));
        let answer = tokio::time::timeout(Duration::from_secs(10), looking).await;
        assert_eq!(answer.unwrap().unwrap(), 7);
        assert!(has_begun.try_recv().is_err(), "the endpoint has no more than its quarter");
        drop(ends);
        for operation in slow {
            operation.await.unwrap().unwrap();
        }
    }

    /// Opens files in as many jobs as it takes, until none can be opened.
    fn open_all(io_limits: &IoLimits, owner: &str) -> Vec<IoSlot> {
        let (owner, endpoint) = (OwnerId::new(owner).unwrap(), EndpointId::new(owner).unwrap());
        let of_job = || {
            let io_limits = io_limits.job(&owner, &endpoint);
            let open: Vec<_> = std::iter::from_fn(|| io_limits.open_file().ok()).collect();
            (!open.is_empty()).then_some(open)
        };
        std::iter::from_fn(of_job).flatten().collect()
    }

    #[test]
    fn an_owner_does_not_use_up_all_open_files() {
        let tenancy = Tenancy::default();
        let io_limits = IoLimits::new(tenancy.clone());
        let all = open_all(&io_limits, "greedy").len();
        tenancy.set_several_owners(true);
        let of_greedy = open_all(&io_limits, "greedy");
        assert_eq!(of_greedy.len(), all * 3 / 4, "of {all}");
        assert!(!open_all(&io_limits, "other").is_empty());
    }
}
