//! State that callers and the store's threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use gristmill_core::id::{EndpointId, JobId, OwnerId, ShardId};
use gristmill_core::job::record::{Demand, Lease};
use gristmill_core::metrics::instruments::Durations;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::permits::{Permit, Permits};
use gristmill_core::signals::Signals;
use gristmill_core::store::StoreError;
use gristmill_core::time::{Clock, Timestamp};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use crate::medium::{Medium, PayloadLocation};
use crate::seal::Seal;
use crate::settings::Settings;
use crate::state::batch::Caches;
use crate::state::caches::ChunkCache;
use crate::state::caches::PayloadCache;
use crate::state::index::{Index, Phase, QueuedNotice};
use crate::state::requests::DbRequest;
use crate::state::room::Room;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Bytes that an operation occupies in the write buffer besides its payload: about the memory that
/// it takes until it is on disk.
const OPERATION_BYTES: usize = 512;

const KIB: usize = 1 << 10;

/// Bytes that the calling task reads from the medium. More goes to a thread that may block.
pub(crate) const READ_INLINE_BYTES_MAX: u32 = 64 << 10;

/// The store's memory, and the channels to its threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) shard: ShardId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) settings: Settings,
    pub(crate) payloads: PayloadCache,
    pub(crate) chunks: ChunkCache,
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) commits: AtomicU64,
    pub(crate) operations: AtomicU64,
    pub(crate) commit_durations: Durations,
    index: Mutex<Index>,
    /// The writer waits here while there is nothing to do.
    wake: Condvar,
    /// The medium's thread waits here.
    wake_medium: Condvar,
    /// Free bytes in the write buffer for small operations.
    pub(crate) space: Semaphore,
    /// KiB in the write buffer for large operations.
    large: Permits,
    /// Whether the repair during the start has ended.
    is_serving: AtomicBool,
}

/// Reserved bytes in the write buffer. They are reserved before the lock is taken, so that no
/// caller waits while it holds the lock. They are released on drop, or with the batch that contains
/// the operation.
#[must_use]
pub(crate) struct Reserved<'a> {
    held: Held<'a>,
    owed: Owed<'a>,
}

/// The part of the write buffer that an operation holds.
enum Held<'a> {
    Small(SemaphorePermit<'a>),
    /// Empty when the operation has been queued.
    Large(Option<Permit>),
}

/// The wait of a large operation for its owner's turn. Boxed, so that the futures of usual
/// operations stay small.
pub(crate) type Turn = BoxFuture<'static, Permit>;

/// Bytes of an operation that the disk owes, also while the operation waits for the write buffer:
/// many large operations at one time must not all find the same free space.
struct Owed<'a> {
    disk_space: &'a DiskSpaceGauge,
    bytes: usize,
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        self.disk_space.settle(self.bytes as u64);
    }
}

impl Reserved<'_> {
    /// The room of the operation, which its batch will release.
    pub(crate) fn take_room(&mut self) -> Room {
        match &mut self.held {
            Held::Small(_) => Room::new(self.owed.bytes, None),
            Held::Large(permit) => Room::new(self.owed.bytes, permit.take()),
        }
    }

    /// The operation was queued with its room, so its batch releases the bytes.
    pub(crate) fn hand_over(self) {
        if let Held::Small(permit) = self.held {
            permit.forget();
        }
        std::mem::forget(self.owed);
    }
}

impl Shared {
    pub(crate) fn new(
        shard: ShardId,
        clock: Arc<dyn Clock>,
        signals: Arc<Signals>,
        settings: Settings,
        index: Index,
        (medium, seal): (Arc<dyn Medium>, Arc<Seal>),
    ) -> Self {
        Self {
            shard,
            clock,
            signals,
            payloads: PayloadCache::new(settings.payload_cache_bytes),
            chunks: ChunkCache::new(settings.chunk_cache_bytes),
            medium,
            seal,
            commits: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            commit_durations: Durations::default(),
            index: Mutex::new(index),
            wake: Condvar::new(),
            wake_medium: Condvar::new(),
            space: Semaphore::new(settings.write_buffer_bytes),
            large: Permits::for_work(settings.write_buffer_bytes / KIB),
            is_serving: AtomicBool::new(false),
            settings,
        }
    }

    /// Begins to serve callers, after the repair during the start.
    pub(crate) fn serve(&self) {
        self.is_serving.store(true, Ordering::Relaxed);
    }

    /// Whether callers are served.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed)
    }

    /// The index, whatever the phase.
    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// The index of an open store.
    pub(crate) fn open_index(&self) -> Result<MutexGuard<'_, Index>, StoreError> {
        let index = self.index.lock();
        if index.phase() == Phase::Open { Ok(index) } else { Err(StoreError::Closed) }
    }

    /// Runs `change` on the open index, then wakes the writer if it is needed.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Index, Timestamp) -> T,
    ) -> Result<T, StoreError> {
        let (answer, needs_writer, has_earlier, early_ends, demands) = {
            let mut index = self.open_index()?;
            let answer = change(&mut index, self.clock.now());
            let (needs_writer, has_earlier) = (index.needs_writer(), index.take_earlier());
            (answer, needs_writer, has_earlier, index.take_early_ends(), index.take_demands())
        };
        if needs_writer {
            self.wake_writer();
        }
        if has_earlier {
            self.signals.due_added();
        }
        self.tell(demands);
        early_ends.iter().for_each(|end| self.signals.ended_early(end));
        Ok(answer)
    }

    /// Runs `read` on the open index.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Index, Timestamp) -> T,
    ) -> Result<T, StoreError> {
        let index = self.open_index()?;
        Ok(read(&index, self.clock.now()))
    }

    /// Runs `change` on the open index, for a caller that wakes the writer if there is something to
    /// write.
    pub(crate) fn change_live<T>(
        &self,
        change: impl FnOnce(&mut Index, Timestamp) -> T,
    ) -> Result<T, StoreError> {
        let (answer, demands) = {
            let mut index = self.open_index()?;
            (change(&mut index, self.clock.now()), index.take_demands())
        };
        self.tell(demands);
        Ok(answer)
    }

    /// Notifies the dispatcher of queues that have changed. The caller does not hold the index.
    pub(crate) fn tell(&self, demands: impl Iterator<Item = (EndpointId, Demand)>) {
        demands.for_each(|(endpoint, demand)| self.signals.demand_changed(&endpoint, demand));
    }

    pub(crate) fn wake_writer(&self) {
        self.wake.notify_one();
    }

    /// Waits until the writer is woken, or `time` is over. Only the writer waits here.
    pub(crate) fn wait(&self, index: &mut MutexGuard<'_, Index>, time: Option<Duration>) {
        wait(&self.wake, index, time);
    }

    /// Waits until the medium's thread is woken, or `time` is over. Only that thread waits here.
    pub(crate) fn wait_medium(
        &self,
        index: &mut MutexGuard<'_, Index>,
        time: Option<Duration>,
    ) -> Waited {
        wait(&self.wake_medium, index, time)
    }

    pub(crate) fn wake_medium(&self) {
        self.wake_medium.notify_one();
    }

    /// Refuses what needs the medium at once while the medium does not answer.
    pub(crate) fn check_available(&self) -> Result<(), StoreError> {
        if self.medium.is_available() { Ok(()) } else { Err(StoreError::Unavailable) }
    }

    /// Sends a request to the medium's thread. The answer arrives at the receiver of `request`.
    pub(crate) fn request(&self, request: DbRequest) -> Result<(), StoreError> {
        self.check_available()?;
        self.open_index()?.push_request(request);
        self.wake_medium();
        Ok(())
    }

    /// The answer of the medium's thread to a request.
    pub(crate) async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> DbRequest,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.request(request(sender))?;
        answer(receiver).await
    }

    /// The payload at a location in the medium; `None` when it has moved.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the bytes are not those that were written. The store continues
    /// to work: other payloads are intact, and the damage is logged.
    pub(crate) async fn read_at(
        &self,
        location: PayloadLocation,
    ) -> Result<Option<Bytes>, StoreError> {
        let read = if location.len <= READ_INLINE_BYTES_MAX {
            self.medium.read(location)
        } else {
            let medium = self.medium.clone();
            let reading = tokio::task::spawn_blocking(move || medium.read(location));
            reading.await.map_err(|_| StoreError::Closed)?
        };
        read.map_err(|error| self.unreadable(&error))
    }

    /// The medium cannot be read: the store ends, unless a single payload is damaged.
    pub(crate) fn unreadable(&self, error: &std::io::Error) -> StoreError {
        match error.kind() {
            std::io::ErrorKind::InvalidData => damaged(error.to_string()),
            _ => self.fail(error),
        }
    }

    /// The medium cannot be read: the store ends.
    pub(crate) fn fail(&self, error: &std::io::Error) -> StoreError {
        self.end(Some(format!("journal: {error}")));
        StoreError::Closed
    }

    /// Further users of published changes.
    pub(crate) fn caches(&self) -> Caches<'_> {
        Caches { payloads: &self.payloads, chunks: &self.chunks, medium: &*self.medium }
    }

    /// Ends the store, with a `reason` if it failed. Waiting callers see their channel close.
    pub(crate) fn end(&self, reason: Option<String>) {
        if let Some(reason) = reason {
            // A disk that failed once may have lost pages that it claims to have. Only a new
            // process that reads everything back can trust it.
            (self.settings.on_fatal)(&reason);
        }
        let rest = std::mem::replace(&mut *self.index(), Index::closed());
        self.space.close();
        self.medium.close();
        self.wake_writer();
        self.wake_medium();
        drop(rest);
    }

    /// Reserves room for a small operation with a payload of `bytes`; waits while there is none.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Reserved<'_>, StoreError> {
        self.reserve_if(bytes, None, |_| true).await?.ok_or(StoreError::Closed)
    }

    /// The wait of a large operation on an endpoint, with a job of `owner`. Costs nothing until it
    /// is polled.
    pub(crate) fn turn(&self, bytes: usize, owner: &OwnerId, endpoint: &EndpointId) -> Turn {
        let share = self.large.share(owner, endpoint);
        async move { share.acquire_many(bytes.div_ceil(KIB)).await }.boxed()
    }

    /// The same for bytes of a running job; `None` when the lease is not the current one.
    pub(crate) fn turn_of(&self, lease: Lease, bytes: usize) -> Result<Option<Turn>, StoreError> {
        self.change_live(|index, now| {
            let (owner, endpoint) = index.owner_of(lease, now)?;
            Some(self.turn(bytes, owner, endpoint))
        })
    }

    /// Reserves room for an operation with a payload of `bytes`, if the disk `admits` them; waits
    /// for its `turn` if the operation is large. The bytes are owed already when the disk is asked,
    /// so that of many operations at one time only as many are admitted as there is space for.
    pub(crate) async fn reserve_if(
        &self,
        bytes: usize,
        turn: Option<Turn>,
        admits: impl FnOnce(&DiskSpaceGauge) -> bool,
    ) -> Result<Option<Reserved<'_>>, StoreError> {
        let wanted = bytes.saturating_add(OPERATION_BYTES);
        let bytes = wanted.min(self.settings.write_buffer_bytes);
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let disk_space = &*self.settings.disk_space;
        disk_space.owe(u64::from(permits));
        let owed = Owed { disk_space, bytes: permits as usize };
        if !admits(disk_space) {
            return Ok(None);
        }
        let held = match turn {
            Some(turn) => Held::Large(Some(turn.await)),
            None => {
                let permit = self.space.acquire_many(permits).await;
                Held::Small(permit.map_err(|_| StoreError::Closed)?)
            }
        };
        Ok(Some(Reserved { held, owed }))
    }

    /// Releases the room of a batch.
    pub(crate) fn free(&self, room: &Room) {
        self.space.add_permits(room.small_bytes());
        self.settings.disk_space.settle_written(room.bytes() as u64);
    }

    /// Counts a committed transaction, which took this time.
    pub(crate) fn count_commit(&self, operations: u64, took: Duration) {
        self.commit_durations.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    pub(crate) fn notify_queued(&self, notice: Option<&QueuedNotice>) {
        if let Some(QueuedNotice { job, .. }) = notice {
            self.signals.job_queued(*job);
        }
    }

    pub(crate) fn notify_changed(&self, ids: &[JobId]) {
        for id in ids {
            self.signals.changed(*id);
        }
    }
}

/// The error for a damaged payload.
pub(crate) fn damaged(details: String) -> StoreError {
    tracing::error!("{details}; `gristmill check` lists all damage");
    StoreError::Damaged(details)
}

fn wait(on: &Condvar, index: &mut MutexGuard<'_, Index>, time: Option<Duration>) -> Waited {
    match time {
        Some(time) if on.wait_for(index, time).timed_out() => Waited::Idle,
        Some(_) => Waited::Woken,
        None => {
            on.wait(index);
            Waited::Woken
        }
    }
}

/// Why a thread was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    Woken,
    Idle,
}

/// Waits for an answer of one of the threads; an error if the store ends first.
pub(crate) async fn answer<T>(receiver: oneshot::Receiver<T>) -> Result<T, StoreError> {
    receiver.await.map_err(|_| StoreError::Closed)
}
