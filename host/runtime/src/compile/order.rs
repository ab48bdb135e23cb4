//! The order in which components are compiled, one at a time.
//!
//! Owners take turns, so that no owner waits behind all uploads of another. Components that jobs
//! wait for come before uploads, at most [`JOBS_IN_A_ROW`] of them while an upload waits.
//!
//! **Bounds.** [`UPLOADS_WAITING_MAX`] uploads of an owner wait; a further one is refused. Workers
//! that need the same component share one compile, so at most as many jobs' components wait as
//! there are deployed endpoints. **Cost:** a lock and a channel for each compile.

use std::collections::VecDeque;
use std::sync::Arc;

use gristmill_core::id::OwnerId;
use gristmill_core::limits::UPLOADS_WAITING_MAX;
use gristmill_core::sharing::turns::{Turns, Waiter};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Most components that are compiled for jobs, one after the other, while an upload waits.
const JOBS_IN_A_ROW: u32 = 4;

/// The reason for a compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Jobs wait for it.
    Job,
    /// A caller uploads it.
    Upload,
}

/// The owner has [`UPLOADS_WAITING_MAX`] uploads that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyUploads;

type Line = Turns<OwnerId, VecDeque<Waiter<Grant>>>;

/// Hands a waiter its turn.
type Grant = oneshot::Sender<CompileTurn>;

/// The running compile and the waiting ones. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct CompileTurns(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    is_taken: bool,
    jobs: Line,
    uploads: Line,
    /// Components that were compiled for jobs since an upload had its turn.
    jobs_in_a_row: u32,
    next_waiter: u64,
}

/// The right to compile now. When it is dropped, the next waiter gets it.
#[derive(Debug)]
pub(crate) struct CompileTurn(CompileTurns);

impl CompileTurns {
    /// Joins the queue. The future resolves to the turn; dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`TooManyUploads`].
    pub(crate) fn join(
        &self,
        owner: &OwnerId,
        purpose: Purpose,
    ) -> Result<impl Future<Output = CompileTurn> + Send + use<>, TooManyUploads> {
        let (grant, granted) = oneshot::channel();
        let number = self.0.lock().push(owner, purpose, grant)?;
        let position =
            WaiterPosition { turns: self.clone(), owner: owner.clone(), purpose, number };
        self.pass_on();
        Ok(async move {
            let turn = granted.await.expect("only its own future removes a waiter");
            drop(position);
            turn
        })
    }

    /// Whether a component is being compiled.
    #[cfg(test)]
    pub(crate) fn is_taken(&self) -> bool {
        self.0.lock().is_taken
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        let Lines { jobs, uploads, .. } = &*self.0.lock();
        let lines = [jobs, uploads].into_iter();
        lines.flat_map(|line| line.in_order().map(|(_, waiters)| waiters.len())).sum()
    }

    /// Gives the turn to the next waiter, if it is free.
    fn pass_on(&self) {
        let Some(waiter) = self.0.lock().next() else { return };
        // Outside the lock: a waiter that has just left passes its turn on at once.
        drop(waiter.grant.send(CompileTurn(self.clone())));
    }
}

impl Lines {
    fn line(&mut self, purpose: Purpose) -> &mut Line {
        match purpose {
            Purpose::Job => &mut self.jobs,
            Purpose::Upload => &mut self.uploads,
        }
    }

    fn push(
        &mut self,
        owner: &OwnerId,
        purpose: Purpose,
        grant: Grant,
    ) -> Result<u64, TooManyUploads> {
        let waiting = self.uploads.get(owner).map_or(0, VecDeque::len);
        if purpose == Purpose::Upload && waiting >= UPLOADS_WAITING_MAX as usize {
            return Err(TooManyUploads);
        }
        let number = self.next_waiter;
        self.next_waiter += 1;
        let waiter = Waiter { number, bytes: 0, grant };
        self.line(purpose).change(owner, false, |waiters| waiters.push_back(waiter));
        Ok(number)
    }

    fn next(&mut self) -> Option<Waiter<Grant>> {
        if self.is_taken {
            return None;
        }
        let uploads_turn = self.jobs_in_a_row >= JOBS_IN_A_ROW && !self.uploads.is_empty();
        let purpose = match self.jobs.is_empty() || uploads_turn {
            true => Purpose::Upload,
            false => Purpose::Job,
        };
        let line = self.line(purpose);
        let owner = line.in_order().next()?.0.clone();
        let waiter = line.change(&owner, true, VecDeque::pop_front)?;
        self.is_taken = true;
        self.jobs_in_a_row = match purpose {
            Purpose::Job => self.jobs_in_a_row.saturating_add(1),
            Purpose::Upload => 0,
        };
        Some(waiter)
    }
}

impl Drop for CompileTurn {
    fn drop(&mut self) {
        self.0.0.lock().is_taken = false;
        self.0.pass_on();
    }
}

/// A waiter's position in the queue. Dropping it leaves the queue.
struct WaiterPosition {
    turns: CompileTurns,
    owner: OwnerId,
    purpose: Purpose,
    number: u64,
}

impl Drop for WaiterPosition {
    fn drop(&mut self) {
        let mut lines = self.turns.0.lock();
        let line = lines.line(self.purpose);
        line.change(&self.owner, false, |line| line.retain(|other| other.number != self.number));
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
