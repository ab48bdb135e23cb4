//! Permits that grow and shrink, so that the bytes of a job follow the memory that it has.
//!
//! **Promise.** A growth takes bytes that are free, or waits for them in its endpoint's line,
//! before all requests for slots of that endpoint, and behind the growths of older jobs: so the
//! oldest one gets all that it needs, and ends. The sum of all permits stays within the limits. A
//! growth that is dropped while it waits takes nothing.
//! **Bounds.** One growth waits for each slot, since a job waits in it.
//! **Cost.** As much as a permit ([`permits`](super)).

use std::time::Instant;

use super::capacity::Request;
use super::{Permit, PermitAmount, PermitShare, Permits, Sharer};
use crate::sharing::shares::Level;

impl<O: Sharer> Permits<O> {
    /// How many growths that had to wait were granted so far.
    pub fn grown(&self) -> u64 {
        self.0.line.lock().grown
    }
}

impl<O: Sharer> PermitShare<O> {
    /// So many bytes more for a job that began at `since` and has a slot at this level, if they are
    /// free and no waiter of its owner is before it.
    pub fn try_grow(&self, bytes: u64, level: Level, since: Instant) -> Option<Permit<O>> {
        self.try_take_request(self.growth(bytes, level, since))
    }

    /// Waits for them. Dropping the future ends the wait.
    pub fn grow(
        &self,
        bytes: u64,
        level: Level,
        since: Instant,
    ) -> impl Future<Output = Permit<O>> + Send + use<O> {
        self.join(self.growth(bytes, level, since))
    }

    /// A growth may leave as little free as a job that is one level deeper.
    fn growth(&self, bytes: u64, level: Level, since: Instant) -> Request {
        let amount = PermitAmount { slots: 0, bytes: bytes.min(self.permits.bytes_max()) };
        Request { amount, level: level.deeper(), grows_since: Some(since) }
    }
}

impl<O: Sharer> Permit<O> {
    /// The share that it belongs to.
    pub fn share(&self) -> &PermitShare<O> {
        &self.share
    }

    /// The level at which it is used.
    pub fn level(&self) -> Level {
        self.request.level
    }

    /// Takes another permit of the same holder into this one.
    pub fn absorb(&mut self, mut more: Self) {
        debug_assert_eq!(self.share.holder, more.share.holder, "a permit has one holder");
        let more = std::mem::take(&mut more.request.amount);
        self.request.amount = self.request.amount + more;
    }

    /// Returns all but so many bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        let amount = PermitAmount { slots: 0, bytes: self.amount().bytes.saturating_sub(bytes) };
        if amount == PermitAmount::default() {
            return;
        }
        self.request.amount = self.request.amount - amount;
        // The part is returned as a permit of its own is.
        drop(Self { share: self.share.clone(), request: Request { amount, ..self.request } });
    }
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
