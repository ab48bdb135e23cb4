//! Permits that grow and shrink, so that the bytes of a job follow the memory that it has.
//!
//! **Promise.** A growth takes bytes that are free, or waits for them in its endpoint's line, before
//! all requests for slots of that endpoint. The sum of all permits stays within the limits. A growth
//! that is dropped while it waits takes nothing.
//! **Bounds.** One growth waits for each slot, since a job waits in it.
//! **Cost.** As much as a permit ([`permits`](super)).

use super::{Permit, PermitAmount, PermitShare, Permits, Sharer};

impl<O: Sharer> Permits<O> {
    /// How many jobs wait to grow.
    pub fn growing(&self) -> usize {
        self.0.state.lock().growing
    }

    /// A number that rises whenever anything is taken or returned. While it stays the same, nobody
    /// that waits comes closer to its permit.
    pub fn moves(&self) -> u64 {
        self.0.state.lock().moves
    }
}

impl<O: Sharer> PermitShare<O> {
    /// So many bytes more for a job that has a slot, if they are free and no waiter of its owner is
    /// before it.
    pub fn try_grow(&self, bytes: u64) -> Option<Permit<O>> {
        self.try_take_amount(PermitAmount { slots: 0, bytes })
    }

    /// Waits for so many bytes more for a job that has a slot. Dropping the future ends the wait.
    pub fn grow(&self, bytes: u64) -> impl Future<Output = Permit<O>> + Send + use<O> {
        self.join(PermitAmount { slots: 0, bytes: bytes.min(self.permits.bytes_max()) })
    }
}

impl<O: Sharer> Permit<O> {
    /// The share that it belongs to.
    pub fn share(&self) -> &PermitShare<O> {
        &self.share
    }

    /// Takes another permit of the same holder into this one.
    pub fn absorb(&mut self, mut more: Self) {
        debug_assert_eq!(self.share.holder, more.share.holder, "a permit has one holder");
        self.amount = self.amount + std::mem::take(&mut more.amount);
    }

    /// Returns all but so many bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        let less = PermitAmount { slots: 0, bytes: self.amount.bytes.saturating_sub(bytes) };
        if less == PermitAmount::default() {
            return;
        }
        self.amount = self.amount - less;
        // The part is returned as a permit of its own is.
        drop(Self { share: self.share.clone(), amount: less });
    }
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
