//! The requests of one endpoint that wait for a worker, the first one first.
//!
//! **Bounds.** [`WAITING_MAX`] requests, each with its head and no more than one piece of its body.

use std::collections::BTreeMap;

use gristmill_core::http_call::HttpCall;
use gristmill_core::http_calls::NoAnswer;
use gristmill_core::id::JobId;
use gristmill_core::job::record::Demand;
use gristmill_core::runtime::AttemptReport;
use gristmill_core::sharing::shares::Level;
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
    /// In the form of a job's id, although there is no job.
    pub(crate) id: JobId,
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
pub(crate) struct RequestLine(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    requests: BTreeMap<Number, WaitingRequest>,
    /// Numbers that were given so far.
    given: u64,
    /// Changes of the line.
    version: u64,
    is_closed: bool,
}

/// The position of a request in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number(u64);

impl RequestLine {
    /// Adds a request at the end.
    ///
    /// # Errors
    /// The line is full, or closed.
    pub(crate) fn push(&self, request: WaitingRequest) -> Result<(Number, Demand), NoAnswer> {
        let mut waiting = self.0.lock();
        if waiting.is_closed {
            return Err(NoAnswer::Stopped);
        }
        if waiting.requests.len() >= WAITING_MAX {
            return Err(NoAnswer::Busy);
        }
        waiting.given += 1;
        let number = Number(waiting.given);
        waiting.requests.insert(number, request);
        Ok((number, waiting.changed()))
    }

    /// Takes the first request.
    pub(crate) fn take(&self) -> Option<(Number, WaitingRequest, Demand)> {
        let mut waiting = self.0.lock();
        let (number, request) = waiting.requests.pop_first()?;
        Some((number, request, waiting.changed()))
    }

    /// Puts a request back that was taken and not begun, unless its client has left.
    pub(crate) fn put_back(&self, number: Number, request: WaitingRequest) -> Demand {
        let mut waiting = self.0.lock();
        if waiting.is_closed || request.stop.is_cancelled() {
            let demand = waiting.demand();
            drop(waiting);
            // Without the lock, since it wakes others.
            drop(request);
            return demand;
        }
        waiting.requests.insert(number, request);
        waiting.changed()
    }

    /// Removes a request; `None` if it does not wait any more.
    pub(crate) fn remove(&self, number: Number) -> Option<Demand> {
        let mut waiting = self.0.lock();
        let removed = waiting.requests.remove(&number)?;
        let demand = waiting.changed();
        drop(waiting);
        // Without the lock, since it wakes others.
        drop(removed);
        Some(demand)
    }

    /// Removes all requests, and takes no more: the endpoint was deleted, or the host drains.
    pub(crate) fn close(&self) {
        let removed = {
            let mut waiting = self.0.lock();
            waiting.is_closed = true;
            waiting.version += 1;
            std::mem::take(&mut waiting.requests)
        };
        drop(removed);
    }
}

impl Waiting {
    fn changed(&mut self) -> Demand {
        self.version += 1;
        self.demand()
    }

    fn demand(&self) -> Demand {
        let count = self.requests.len() as u64;
        Demand {
            version: self.version,
            jobs: count,
            since: self.requests.values().next().map(|request| request.since),
            claimable: count,
            called: 0,
            level: Level::CLIENT,
        }
    }
}
