//! The memory of request bodies that are being read, and of large results that are being assembled:
//! each has one bound for all callers, and a share for each key.
//!
//! A body takes memory when its bytes arrive, not when it is announced. While it arrives quickly,
//! the rest of its announced length is reserved too, so that a body that has begun can end. A body
//! slower than [`QUICK_BYTES_PER_SECOND`] holds the received bytes and [`STEP_BYTES`] more. Bodies
//! beyond the bound wait; the bodies of the key that holds the least memory are first. A large body
//! that does not fit yet delays neither smaller bodies of its key, nor keys that hold less memory
//! than its key would then hold.
//!
//! A result takes all of its memory at once, and holds it until the answer is complete.
//!
//! **Bounds.** [`BODIES_IN_FLIGHT_BYTES_MAX`] of bodies and [`RESULTS_IN_FLIGHT_BYTES_MAX`] of
//! results. Each key has [a share](SharedBound), on a host of one owner too: 192 MiB of bodies for
//! one busy key, and 109 MiB for each of two. A wait ends after [`TURN_WAIT`].
//!
//! **Cost.** Nothing for a body of at most [`SMALL_BODY_BYTES`] on HTTP/1.1; for another one a lock
//! at its start and at its end, and two for each second in between.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use gristmill_core::id::KeyId;
use gristmill_core::sharing::shares::{Fit, Holdings, SharedBound};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::answer::error::{ApiError, ErrorCode};

/// Most bytes of request bodies that are held at one time (256 MiB). A call beyond it waits, and
/// gets 503 after [`TURN_WAIT`].
pub(crate) const BODIES_IN_FLIGHT_BYTES_MAX: usize = 256 << 20;

/// Most bytes of large results that are being assembled at one time (128 MiB). A list of 20 MiB of
/// chunks needs 28 MiB, so one key can have three in progress, and the next key one.
pub(crate) const RESULTS_IN_FLIGHT_BYTES_MAX: usize = 128 << 20;

/// Results, and the bodies of HTTP/1.1, do not count against the bound up to this size: a
/// connection's read buffer is of the same order. On HTTP/2 a connection carries up to 256 bodies
/// at one time, and each of them counts.
pub(crate) const SMALL_BODY_BYTES: usize = 64 << 10;

/// How long a body waits for memory.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// A body that receives fewer bytes in a second is slow from then on. A connection of 10 Mbit/s
/// delivers more.
const QUICK_BYTES_PER_SECOND: usize = 1 << 20;

const SECOND: Duration = Duration::from_secs(1);

/// The memory of a slow body grows by this much.
const STEP_BYTES: usize = 64 << 10;

/// The memory of all bodies, or of all results.
#[derive(Debug, Clone)]
pub(crate) struct InFlight(Arc<Mutex<Pool>>);

#[derive(Debug)]
struct Pool {
    /// The refusal of a call that found no memory.
    refusal: &'static str,
    bound: SharedBound,
    /// Bytes of each key.
    held: Holdings<KeyId>,
    bodies: BTreeMap<u64, Holder>,
    /// Number of waiting bodies.
    waiting: usize,
    next_body: u64,
}

/// A body that holds memory, or waits for some.
#[derive(Debug)]
struct Holder {
    key: KeyId,
    bytes: usize,
    memory_request: Option<MemoryRequest>,
}

/// The memory that a body waits for, beyond the memory that it holds.
#[derive(Debug)]
struct MemoryRequest {
    bytes: usize,
    granted: oneshot::Sender<()>,
}

impl Pool {
    /// Whether the key may have so many bytes more. A large first body has to leave something too,
    /// so that the small ones of other keys find room.
    fn fits(&self, key: &KeyId, bytes: u64) -> bool {
        let is_small = bytes <= SMALL_BODY_BYTES as u64;
        let held = self.held.of(key).max(u64::from(!is_small));
        self.bound.fit(held, self.held.all(), bytes) == Fit::Fits
    }

    /// Adds a body, or requests more memory for it. `None`: it has the memory now.
    fn ask(
        &mut self,
        body: &mut Option<u64>,
        key: &KeyId,
        bytes: usize,
    ) -> Option<oneshot::Receiver<()>> {
        let id = *body.get_or_insert_with(|| {
            self.next_body += 1;
            self.bodies.insert(
                self.next_body,
                Holder { key: key.clone(), bytes: 0, memory_request: None },
            );
            self.next_body
        });
        let (granted, turn) = oneshot::channel();
        let holder = self.bodies.get_mut(&id)?;
        holder.memory_request = Some(MemoryRequest { bytes, granted });
        self.waiting += 1;
        self.grant();
        let waits = self.bodies.get(&id).is_some_and(|holder| holder.memory_request.is_some());
        waits.then_some(turn)
    }

    /// Gives free memory to the waiting bodies.
    fn grant(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let wishes = self.bodies.iter().filter_map(|(id, holder)| {
            let memory_request = holder.memory_request.as_ref()?;
            Some((self.held.of(&holder.key), *id, memory_request.bytes as u64))
        });
        let mut wishes: Vec<_> = wishes.collect();
        // The key that holds the least is first, and of its bodies the oldest.
        wishes.sort_unstable();
        // A key may not pass a waiting body if it would then hold more than that body's key.
        let mut ceiling = u64::MAX;
        for (_, id, bytes) in wishes {
            let Some(holder) = self.bodies.get(&id) else { continue };
            let held_then = self.held.of(&holder.key) + bytes;
            if held_then > ceiling || !self.fits(&holder.key, bytes) {
                ceiling = ceiling.min(held_then);
                continue;
            }
            let Some(holder) = self.bodies.get_mut(&id) else { continue };
            self.held.add(&holder.key, bytes);
            self.waiting -= 1;
            if let Some(memory_request) = holder.memory_request.take() {
                holder.bytes += memory_request.bytes;
                // If the call was dropped, its memory returns when its share is dropped.
                let _ = memory_request.granted.send(());
            }
        }
    }

    /// Reduces the body's memory to `bytes`.
    fn shrink(&mut self, id: u64, bytes: usize) {
        let Some(holder) = self.bodies.get_mut(&id) else { return };
        let surplus = holder.bytes.saturating_sub(bytes);
        holder.bytes -= surplus;
        self.held.remove(&holder.key, surplus as u64);
        self.grant();
    }

    /// Ends the body's wait, unless it has just been granted. The body cannot continue without
    /// memory, so all of its memory is released at the same moment; among several bodies that wait
    /// for each other, one gives up and the others end.
    fn give_up(&mut self, id: u64) -> bool {
        let Some(holder) = self.bodies.get_mut(&id) else { return true };
        if holder.memory_request.take().is_none() {
            return false;
        }
        self.waiting -= 1;
        self.shrink(id, 0);
        true
    }

    fn remove(&mut self, id: u64) {
        self.give_up(id);
        self.shrink(id, 0);
        self.bodies.remove(&id);
    }
}

impl InFlight {
    /// The memory of request bodies.
    pub(crate) fn of_bodies() -> Self {
        let refusal = "too many large bodies are being read; try again shortly";
        Self::new(BODIES_IN_FLIGHT_BYTES_MAX, refusal)
    }

    /// The memory of large results.
    pub(crate) fn of_results() -> Self {
        let refusal = "too many large results are being read; try again shortly";
        Self::new(RESULTS_IN_FLIGHT_BYTES_MAX, refusal)
    }

    fn new(bytes_max: usize, refusal: &'static str) -> Self {
        Self(Arc::new(Mutex::new(Pool {
            refusal,
            bound: SharedBound::always(bytes_max as u64),
            held: Holdings::default(),
            bodies: BTreeMap::new(),
            waiting: 0,
            next_body: 0,
        })))
    }

    /// Memory for a result of so many bytes. `None`: it is small, and needs none.
    ///
    /// # Errors
    /// 503 when there is none for [`TURN_WAIT`].
    pub(crate) async fn result(
        &self,
        key: &KeyId,
        bytes: usize,
    ) -> Result<Option<Share>, ApiError> {
        if bytes <= SMALL_BODY_BYTES {
            return Ok(None);
        }
        let mut share = self.share(key, bytes, SMALL_BODY_BYTES);
        share.cover(bytes).boxed().await?;
        Ok(Some(share))
    }

    /// The memory of a body that may become `wanted` bytes long. It holds none yet, and needs none
    /// for its first `uncounted` bytes.
    pub(crate) fn share(&self, key: &KeyId, wanted: usize, uncounted: usize) -> Share {
        let (pool, key) = (self.clone(), key.clone());
        Share { pool, key, body: None, wanted, uncounted, held: 0, quick: None }
    }
}

/// The memory of one body, which is released on drop.
#[derive(Debug)]
pub(crate) struct Share {
    pool: InFlight,
    key: KeyId,
    /// Its number in the pool, once it holds or waits for memory.
    body: Option<u64>,
    wanted: usize,
    /// A body of at most this many bytes needs no memory from the pool.
    uncounted: usize,
    held: usize,
    /// `None`: the body is slow, or has no memory yet.
    quick: Option<Quick>,
}

/// A body that has been quick so far.
#[derive(Debug, Clone, Copy)]
struct Quick {
    since: Instant,
    /// Bytes that had arrived by then.
    bytes: usize,
}

impl Share {
    /// Waits for `next`, the next part of a body; `bytes` is the number of bytes that have arrived.
    /// If the body becomes slow meanwhile, it releases the memory that was reserved for its rest.
    pub(crate) async fn meanwhile<T>(&mut self, bytes: usize, next: impl Future<Output = T>) -> T {
        let mut next = pin!(next);
        while let Some(quick) = self.quick {
            match timeout_at(quick.since + SECOND, next.as_mut()).await {
                Ok(next) => return next,
                Err(_) => self.look(bytes),
            }
        }
        next.await
    }

    /// Gets memory for the body's first `bytes`; returns the time that this took.
    ///
    /// # Errors
    /// 503 when there is none for [`TURN_WAIT`].
    pub(crate) async fn cover(&mut self, bytes: usize) -> Result<Duration, ApiError> {
        self.look(bytes);
        if bytes <= self.uncounted || bytes <= self.held {
            return Ok(Duration::ZERO);
        }
        let is_first = self.body.is_none();
        let whole = self.wanted.max(bytes);
        let wanted = match is_first || self.quick.is_some() {
            true => whole,
            false => bytes.next_multiple_of(STEP_BYTES).min(whole),
        };
        let started = Instant::now();
        let turn = self.pool.0.lock().ask(&mut self.body, &self.key, wanted - self.held);
        if let Some(turn) = turn
            && timeout(TURN_WAIT, turn).await.is_err()
            && self.body.is_some_and(|body| self.pool.0.lock().give_up(body))
        {
            self.held = 0;
            return Err(ApiError::new(ErrorCode::Unavailable, self.pool.0.lock().refusal));
        }
        self.held = wanted;
        if is_first || self.quick.is_some() {
            self.quick = Some(Quick { since: Instant::now(), bytes });
        }
        Ok(started.elapsed())
    }

    /// The body has ended after this many bytes.
    pub(crate) fn ended(&mut self, bytes: usize) {
        self.quick = None;
        self.keep(bytes);
    }

    /// Checks, once in a second, whether the body is still quick.
    fn look(&mut self, bytes: usize) {
        let Some(quick) = self.quick.filter(|quick| quick.since.elapsed() >= SECOND) else {
            return;
        };
        if bytes.saturating_sub(quick.bytes) >= QUICK_BYTES_PER_SECOND {
            self.quick = Some(Quick { since: Instant::now(), bytes });
        } else {
            self.quick = None;
            self.keep(bytes.next_multiple_of(STEP_BYTES));
        }
    }

    fn keep(&mut self, bytes: usize) {
        if let Some(body) = self.body.filter(|_| bytes < self.held) {
            self.held = bytes;
            self.pool.0.lock().shrink(body, bytes);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(body) = self.body {
            self.pool.0.lock().remove(body);
        }
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
