//! What one instance is charged of the memory of all sandboxes.
//!
//! **Promise.** An instance never has more than it is charged: it asks before it takes more, and
//! waits where the host has no more. At its start it is charged an
//! [estimate](gristmill_core::peaks), so that most instances never wait. [`SETTLES_AFTER`] later it
//! is charged only what it has. With `reserveMemory` it is charged all that it may have, from its
//! start to its end.
//!
//! **Charged** are the sizes of its memories and tables, which it can touch at any time, the host's
//! copies of its input and its environment, the requests and fields that it holds, and
//! [`SANDBOX_BASE_BYTES`] for its stack and its state.
//! **Cost.** One uncontended lock for each growth, and one more where the estimate was too low.

use std::time::{Duration, Instant};

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::peaks::{Peaks, SANDBOX_BASE_BYTES};
use gristmill_core::runtime::AttemptEnd;
use gristmill_core::sharing::permits::Permit;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use crate::sandbox::growths::{Growth, Growths, NoMemory};
use crate::sandbox::reserves::Reserves;

/// How long the estimate is charged. Most handlers have allocated their memory by then.
pub(crate) const SETTLES_AFTER: Duration = Duration::from_secs(2);

/// The memory of all sandboxes, as far as an instance must know it.
#[derive(Debug)]
pub(crate) struct Account {
    /// What earlier attempts were charged.
    pub(crate) peaks: Peaks,
    /// The attempts that wait for memory.
    pub(crate) growths: Growths,
    /// The sandboxes that endpoints keep.
    pub(crate) reserves: Reserves,
}

impl Account {
    pub(crate) fn new(growths: Growths) -> Self {
        Self { peaks: Peaks::default(), growths, reserves: Reserves::default() }
    }

    /// An attempt has been charged so many bytes so far.
    pub(crate) fn seen(&self, deployment: &Deployment, bytes: u64) {
        self.peaks.seen(deployment, bytes);
        self.resize_reserve(deployment);
    }

    /// An attempt has ended so, and was charged so many bytes.
    pub(crate) fn ended<T>(&self, deployment: &Deployment, end: &AttemptEnd<T>, bytes: u64) {
        self.peaks.ended(deployment, end, bytes);
        self.resize_reserve(deployment);
    }

    fn resize_reserve(&self, deployment: &Deployment) {
        if deployment.endpoint.settings.workers_min > 0 {
            let estimate = self.peaks.estimate(deployment).min(self.growths.bytes_max());
            self.reserves.resize(&deployment.endpoint.id, estimate);
        }
    }
}

/// The charge of one instance.
#[derive(Debug)]
pub(crate) struct Charge(Mutex<Charged>);

#[derive(Debug)]
struct Charged {
    permit: Permit,
    /// The permit has all that the instance may have, and neither grows nor shrinks.
    is_fixed: bool,
    /// Bytes that the instance has, or waits for.
    used: u64,
    /// Most of them since its present attempt began.
    peak: u64,
    /// When its present attempt began.
    since: Instant,
}

impl Charge {
    /// The charge of a new instance. The permit has a slot and the estimate; it is fixed with
    /// `reserveMemory`.
    pub(crate) fn new(permit: Permit, is_fixed: bool) -> Self {
        let (used, peak, since) = (SANDBOX_BASE_BYTES, SANDBOX_BASE_BYTES, Instant::now());
        Self(Mutex::new(Charged { permit, is_fixed, used, peak, since }))
    }

    /// The slot and the bytes that are charged.
    pub(crate) fn permit(&self) -> MappedMutexGuard<'_, Permit> {
        MutexGuard::map(self.0.lock(), |charged| &mut charged.permit)
    }

    /// Most bytes that the instance had since its present attempt began.
    pub(crate) fn peak(&self) -> u64 {
        self.0.lock().peak
    }

    /// A further attempt of the same instance begins.
    pub(crate) fn begin(&self) {
        let mut charged = self.0.lock();
        (charged.peak, charged.since) = (charged.used, Instant::now());
    }

    /// Charges so many bytes more; waits if the host has none. `memory_bytes_max`: the limit of the
    /// endpoint. `has_acted`: whether the attempt has had an effect outside of its instance, so
    /// that a second run may repeat it. Returns how long it has waited.
    ///
    /// # Errors
    /// [`NoMemory`] when no attempt that waits gets memory: this one must end.
    pub(crate) async fn add(
        &self,
        bytes: u64,
        growths: &Growths,
        memory_bytes_max: u64,
        has_acted: bool,
    ) -> Result<Duration, NoMemory> {
        let (share, growth) = {
            let mut charged = self.0.lock();
            charged.used += bytes;
            charged.peak = charged.peak.max(charged.used);
            let has = charged.permit.amount().bytes;
            // Most growths end here, without the lock that all sandboxes share.
            if charged.used <= has || charged.is_fixed {
                return Ok(Duration::ZERO);
            }
            // No instance is charged more than one may have, so that every wait can end.
            let missing = charged.used.min(growths.bytes_max()).saturating_sub(has);
            if missing == 0 {
                return Ok(Duration::ZERO);
            }
            let (level, since) = (charged.permit.level(), charged.since);
            let growth = Growth { level, since, has, missing, memory_bytes_max, has_acted };
            (charged.permit.share().clone(), growth)
        };
        let begun = Instant::now();
        let (more, waited) = match share.try_grow(growth.missing, growth.level, growth.since) {
            Some(more) => (more, Duration::ZERO),
            None => (growths.wait(&share, growth).await?, begun.elapsed()),
        };
        self.0.lock().permit.absorb(more);
        Ok(waited)
    }

    /// The instance has so many bytes less. They are charged until the next
    /// [`settle`](Self::settle).
    pub(crate) fn subtract(&self, bytes: u64) {
        let mut charged = self.0.lock();
        charged.used = charged.used.saturating_sub(bytes);
    }

    /// Returns what is charged beyond what the instance has.
    pub(crate) fn settle(&self) {
        let mut charged = self.0.lock();
        let used = charged.used;
        if !charged.is_fixed {
            charged.permit.shrink_to(used);
        }
    }
}
