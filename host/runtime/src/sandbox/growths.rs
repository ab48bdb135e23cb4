//! The attempts that wait for memory, and the end of some of them when none gets any.
//!
//! **Promise.** Attempts wait to grow only while others give memory back. When none of them got
//! memory for [`STALL`], the oldest one waits for all that its endpoint allows, and others end with
//! [`NoMemory`] until the oldest has it. Their jobs go back to their places in the queue. The
//! youngest end first, and only attempts without an effect outside; after [`STALL_OF_ACTORS`] the
//! others too. An attempt that asks for nothing is never ended. From then on, and for as long as
//! attempts wait, those of an endpoint with several waiting attempts wait for all too, so that the
//! memory of an attempt that has ended lets the next one end.
//! **Bounds.** One entry for each sandbox. **Cost.** None while no attempt waits; one task looks
//! once a second while some do. A wait that begins after nobody got memory costs a look at all
//! others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::peaks::SANDBOX_BASE_BYTES;
use gristmill_core::sharing::permits::{Permit, PermitShare, Permits};
use gristmill_core::sharing::shares::Level;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant as Clock;

/// Interval of the looks.
const LOOK: Duration = Duration::from_secs(1);

/// How long no attempt gets memory before those without an effect outside end.
const STALL: Duration = Duration::from_secs(5);

/// How long no attempt gets memory before any that waits may end.
const STALL_OF_ACTORS: Duration = Duration::from_secs(30);

/// An attempt got no memory, since no other one returned any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host has no memory for the handler")]
pub(crate) struct NoMemory;

/// The waits of all attempts. A clone shares them.
#[derive(Clone)]
pub(crate) struct Growths(Arc<Shared>);

struct Shared {
    permits: Permits,
    make_room: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// By the order in which the waits began.
    waiting: BTreeMap<u64, Waiting>,
    is_watched: bool,
    /// Whether attempts wait for all that they may have, since one has not got memory in time and
    /// others wait ever since.
    is_tight: bool,
}

struct Waiting {
    share: PermitShare,
    growth: Growth,
    order: oneshot::Sender<Order>,
}

/// What an attempt that waits is to do when no attempt gets memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// It ends.
    End,
    /// It waits for all that it may have. Otherwise the memory of those that end would go to all
    /// others in small pieces, and none of them would end.
    TakeAll,
}

/// An attempt that needs memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    /// The level of its job.
    pub(crate) level: Level,
    /// When it began.
    pub(crate) since: Instant,
    /// Bytes that it is charged.
    pub(crate) has: u64,
    /// Bytes that it needs now.
    pub(crate) missing: u64,
    /// The limit of its endpoint.
    pub(crate) memory_bytes_max: u64,
    /// Whether it has had an effect outside of its instance.
    pub(crate) has_acted: bool,
}

impl Growth {
    /// Bytes that it needs at most to end.
    fn missing_max(&self) -> u64 {
        self.missing.max((self.memory_bytes_max + SANDBOX_BASE_BYTES).saturating_sub(self.has))
    }

    /// Whether it waits for all that it may have.
    fn takes_all(&self) -> bool {
        self.missing >= self.missing_max()
    }
}

impl Growths {
    /// No waits. `make_room` ends idle instances that hold memory for which an attempt waits; it is
    /// called when a wait begins, and at each look.
    pub(crate) fn new(permits: Permits, make_room: impl Fn() + Send + Sync + 'static) -> Self {
        let make_room = Box::new(make_room);
        Self(Arc::new(Shared { permits, make_room, state: Mutex::default() }))
    }

    /// Most bytes that one instance may be charged.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.0.permits.bytes_of_owner_max()
    }

    /// Waits for the bytes that are missing. Dropping the future ends the wait.
    ///
    /// # Errors
    /// [`NoMemory`] when this wait is ended.
    pub(crate) async fn wait(
        &self,
        share: &PermitShare,
        mut growth: Growth,
    ) -> Result<Permit, NoMemory> {
        if self.0.state.lock().is_tight_for(share) {
            growth.missing = growth.missing_max();
        }
        loop {
            let granted = share.grow(growth.missing, growth.level, growth.since);
            let (order, ordered) = oneshot::channel();
            let _entry = self.enter(Waiting { share: share.clone(), growth, order });
            (self.0.make_room)();
            tokio::select! {
                biased;
                permit = granted => return Ok(permit),
                Ok(order) = ordered => match order {
                    Order::End => return Err(NoMemory),
                    Order::TakeAll => growth.missing = growth.missing_max(),
                },
            }
        }
    }

    fn enter(&self, waiting: Waiting) -> Entry {
        let mut state = self.0.state.lock();
        state.last += 1;
        let number = state.last;
        state.waiting.insert(number, waiting);
        if !std::mem::replace(&mut state.is_watched, true) {
            drop(tokio::spawn(self.clone().watch()));
        }
        Entry { growths: self.clone(), number }
    }

    /// Looks once a second, until no attempt waits.
    async fn watch(self) {
        let mut last = (self.0.permits.grown(), Clock::now());
        loop {
            tokio::time::sleep(LOOK).await;
            (self.0.make_room)();
            let (grown, now) = (self.0.permits.grown(), Clock::now());
            if grown != last.0 {
                last = (grown, now);
            }
            let mut state = self.0.state.lock();
            if state.waiting.is_empty() {
                (state.is_watched, state.is_tight) = (false, false);
                return;
            }
            let still = now.duration_since(last.1);
            let orders = state.orders(still);
            drop(state);
            for (waiting, order) in orders {
                // Its receiver may have left a moment ago.
                let _ = waiting.order.send(order);
            }
        }
    }
}

impl State {
    /// Whether the next wait of the share is for all that it may have.
    fn is_tight_for(&self, share: &PermitShare) -> bool {
        self.is_tight
            && self.waiting.values().any(|waiting| waiting.share.holder() == share.holder())
    }

    /// The orders that waits get after none was granted for so long.
    fn orders(&mut self, still: Duration) -> Vec<(Waiting, Order)> {
        let by_age = self.waiting.iter().min_by_key(|(_, waiting)| waiting.growth.since);
        let Some((&oldest, first)) = by_age else { return vec![] };
        let missing = first.growth.missing;
        if self.is_tight || still >= STALL {
            let takers = self.takers(oldest);
            if !takers.is_empty() {
                self.is_tight = true;
                return self.take(&takers, Order::TakeAll);
            }
        }
        match still >= STALL {
            true => self.take(&self.victims(oldest, missing, still), Order::End),
            false => vec![],
        }
    }

    /// Those that are to wait for all from now on: the oldest one, and all of an endpoint that has
    /// several. A single one keeps no memory from others of its endpoint.
    fn takers(&self, oldest: u64) -> Vec<u64> {
        let mut of_endpoints = HashMap::<_, usize>::new();
        for waiting in self.waiting.values() {
            *of_endpoints.entry(waiting.share.holder()).or_default() += 1;
        }
        let takers = self.waiting.iter().filter(|(number, Waiting { share, growth, .. })| {
            let has_others = of_endpoints.get(share.holder()).is_some_and(|count| *count > 1);
            !growth.takes_all() && (**number == oldest || has_others)
        });
        takers.map(|(number, _)| *number).collect()
    }

    /// Those that end, until the oldest one has all that is `missing`. It ends itself only if no
    /// other one may.
    fn victims(&self, oldest: u64, mut missing: u64, still: Duration) -> Vec<u64> {
        let is_due = |growth: &Growth| !growth.has_acted || still >= STALL_OF_ACTORS;
        let due = self.waiting.iter().filter(|(_, waiting)| is_due(&waiting.growth));
        let mut due: Vec<_> = due.map(|(number, waiting)| (*number, waiting.growth)).collect();
        due.sort_by_key(|(number, growth)| {
            (*number == oldest, growth.has_acted, Reverse(growth.since))
        });
        let mut ends = vec![];
        for (number, growth) in due {
            if missing == 0 || (number == oldest && !ends.is_empty()) {
                break;
            }
            missing = missing.saturating_sub(growth.has);
            ends.push(number);
        }
        ends
    }

    fn take(&mut self, numbers: &[u64], order: Order) -> Vec<(Waiting, Order)> {
        let taken = numbers.iter().filter_map(|number| self.waiting.remove(number));
        taken.map(|waiting| (waiting, order)).collect()
    }
}

/// A wait that has begun. Dropping it ends the wait.
struct Entry {
    growths: Growths,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.growths.0.state.lock().waiting.remove(&self.number);
    }
}

impl std::fmt::Debug for Growths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.0.state.lock().waiting.len();
        f.debug_struct("Growths").field("waiting", &waiting).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "growths_tests.rs"]
mod tests;
