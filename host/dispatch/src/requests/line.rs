//! The requests of one endpoint that wait for a worker: callers take turns, and each caller's first
//! one comes first. A caller is a key, or the address of a visitor. The jobs of the endpoint, which
//! are requests that are answered later, wait in the store; they take turns with all of the line,
//! whose demand includes theirs.
//!
//! **Bounds.** [`WAITING_MAX`] requests, each with its head and no more than one piece of its body.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gristmill_core::http_call::HttpCall;
use gristmill_core::http_calls::NoAnswer;
use gristmill_core::http_requests::ObservedRequest;
use gristmill_core::id::KeyId;
use gristmill_core::job::record::Demand;
use gristmill_core::runtime::AttemptReport;
use gristmill_core::sharing::shares::Level;
use gristmill_core::sharing::turns::{Turns, Waiter};
use gristmill_core::time::Timestamp;
use gristmill_core::trace::TraceContext;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Most requests of an endpoint that wait.
const WAITING_MAX: usize = 1_000;

/// A request that waits for a worker.
#[derive(Debug)]
pub(crate) struct WaitingRequest {
    pub(crate) observed: Arc<ObservedRequest>,
    pub(crate) caller: KeyId,
    pub(crate) call: HttpCall,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) since: Timestamp,
    /// Fires when the client has left.
    pub(crate) stop: CancellationToken,
    /// Receives the report when the handler has returned.
    pub(crate) ended: oneshot::Sender<AttemptReport<()>>,
}

/// The line.
#[derive(Debug, Default)]
pub(crate) struct RequestLine {
    waiting: Mutex<Waiting>,
    /// Fires when the endpoint was deleted.
    deleted: CancellationToken,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: BTreeMap<Number, WaitingRequest>,
    /// The same requests by their callers.
    turns: Turns<KeyId, VecDeque<Waiter<()>>>,
    /// Numbers that were given so far.
    given: u64,
    /// The jobs that wait in the store.
    jobs: Demand,
    /// Whether the next turn is that of a job, if one waits.
    is_jobs_turn: bool,
    /// Changes of the line and of the jobs.
    version: u64,
    is_closed: bool,
}

/// The position of a request in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number(u64);

impl RequestLine {
    /// A token for the end of one request, which also fires with the endpoint's deletion.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.deleted.child_token()
    }

    /// Adds a request at the end.
    ///
    /// # Errors
    /// The line is full, or closed.
    pub(crate) fn push(&self, request: WaitingRequest) -> Result<(Number, Demand), NoAnswer> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(NoAnswer::Stopped);
        }
        if waiting.requests.len() >= WAITING_MAX {
            return Err(NoAnswer::Busy);
        }
        waiting.given += 1;
        let number = Number(waiting.given);
        let waiter = waiter(number);
        waiting.turns.change(&request.caller, false, |all| all.push_back(waiter));
        waiting.requests.insert(number, request);
        Ok((number, waiting.changed()))
    }

    /// The number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().requests.len()
    }

    /// The jobs that wait in the store have changed. Returns the demand with them.
    pub(crate) fn jobs_changed(&self, jobs: Demand) -> Demand {
        let mut waiting = self.waiting.lock();
        // Reports of the store may overtake each other.
        if jobs.version > waiting.jobs.version {
            waiting.jobs = jobs;
            return waiting.changed();
        }
        waiting.demand()
    }

    /// Whether a worker is to claim a job now, and not to take a request.
    pub(crate) fn is_jobs_turn(&self) -> bool {
        let mut waiting = self.waiting.lock();
        let has_jobs = waiting.jobs.claimable > 0;
        let is_jobs_turn = has_jobs && (waiting.is_jobs_turn || waiting.requests.is_empty());
        waiting.is_jobs_turn &= !is_jobs_turn;
        is_jobs_turn
    }

    /// Takes the first request of the next caller.
    pub(crate) fn take(&self) -> Option<(Number, WaitingRequest, Demand)> {
        let mut waiting = self.waiting.lock();
        let number = Number(waiting.turns.first()?.number);
        let request = waiting.requests.remove(&number)?;
        waiting.turns.change(&request.caller, true, VecDeque::pop_front);
        waiting.is_jobs_turn = true;
        Some((number, request, waiting.changed()))
    }

    /// Puts a request back that was taken and not begun, unless its client has left.
    pub(crate) fn put_back(&self, number: Number, request: WaitingRequest) -> Demand {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed || request.stop.is_cancelled() {
            let demand = waiting.demand();
            drop(waiting);
            // Without the lock, since it wakes others.
            drop(request);
            return demand;
        }
        let waiter = waiter(number);
        waiting.turns.change(&request.caller, false, |all| all.push_front(waiter));
        waiting.requests.insert(number, request);
        waiting.changed()
    }

    /// Removes a request; `None` if it does not wait any more.
    pub(crate) fn remove(&self, number: Number) -> Option<Demand> {
        let mut waiting = self.waiting.lock();
        let removed = waiting.requests.remove(&number)?;
        let is_other = |waiter: &Waiter<()>| waiter.number != number.0;
        waiting.turns.change(&removed.caller, false, |all| all.retain(is_other));
        let demand = waiting.changed();
        drop(waiting);
        // Without the lock, since it wakes others.
        drop(removed);
        Some(demand)
    }

    /// Ends all requests, also those that run, and takes no more: the endpoint was deleted.
    pub(crate) fn delete(&self) {
        self.close();
        self.deleted.cancel();
    }

    /// Removes all requests that wait, and takes no more: the host drains.
    pub(crate) fn close(&self) {
        let removed = {
            let mut waiting = self.waiting.lock();
            waiting.is_closed = true;
            waiting.version += 1;
            waiting.turns = Turns::default();
            std::mem::take(&mut waiting.requests)
        };
        drop(removed);
    }
}

/// All requests ask for the same.
fn waiter(Number(number): Number) -> Waiter<()> {
    Waiter { number, bytes: 0, grant: () }
}

impl Waiting {
    fn changed(&mut self) -> Demand {
        self.version += 1;
        self.demand()
    }

    fn demand(&self) -> Demand {
        let count = self.requests.len() as u64;
        let since = self.requests.values().next().map(|request| request.since);
        Demand {
            version: self.version,
            jobs: self.jobs.jobs + count,
            since: self.jobs.since.into_iter().chain(since).min(),
            claimable: self.jobs.claimable + count,
            called: 0,
            level: Level::CLIENT,
        }
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
