//! The connections that each owner holds, so that the keys of one owner cannot take all connections of
//! the host.
//!
//! A connection counts for the owner of its last valid key. An owner holds at most [three times as
//! many](fair_share) connections as are left free, so there is always one for the next owner. A call
//! that would bring its owner beyond that is refused, and its connection ends; so does a connection
//! whose key is not valid any more. Connections without a valid key are bounded by their address.
//!
//! **Cost.** A lock of the connection for each call; a lock that all connections share when the first
//! call of a connection has shown its key, when its owner changes, and at its end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use gristmill_core::fair_share;
use gristmill_core::id::OwnerId;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::error::{ApiError, ErrorCode};
use crate::refusal::Refusal;

/// The connections of one listener, by owner.
#[derive(Debug)]
pub struct ConnectionShares {
    /// One permit for each connection that may still be opened.
    free: Arc<Semaphore>,
    held: Mutex<HashMap<OwnerId, u64>>,
}

impl ConnectionShares {
    /// Counts the connections of a listener, each of which holds a permit of `free`.
    pub fn new(free: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { free, held: Mutex::default() })
    }

    /// A new connection, which counts for no owner yet.
    pub fn connection(self: &Arc<Self>) -> Arc<ConnectionAuth> {
        let (owner, ends) = (Mutex::default(), CancellationToken::new());
        Arc::new(ConnectionAuth { shares: Some(self.clone()), owner, ends })
    }

    /// Counts a connection for the owner.
    ///
    /// # Errors
    /// [`OwnerAtShare`]; nothing was counted.
    fn add(&self, owner: &OwnerId) -> Result<(), OwnerAtShare> {
        // The connection itself is not free any more.
        let free = self.free.available_permits() as u64;
        let mut all = self.held.lock();
        let held = all.get(owner).copied().unwrap_or(0);
        // The first connection of an owner is exempt.
        if held > 0 && !fair_share::admits(held + 1, free) {
            return Err(OwnerAtShare { held });
        }
        *all.entry(owner.clone()).or_default() += 1;
        Ok(())
    }

    fn remove(&self, owner: OwnerId) {
        if let Entry::Occupied(mut held) = self.held.lock().entry(owner) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

/// The owner of a call has as many connections as one owner may have beside the others now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerAtShare {
    held: u64,
}

impl From<OwnerAtShare> for ApiError {
    fn from(OwnerAtShare { held }: OwnerAtShare) -> Self {
        let sentence = format!(
            "this owner's keys hold {held} connections, as many as one owner may have beside the \
             others now; close some, or use them for more calls"
        );
        let cap = u32::try_from(held).unwrap_or(u32::MAX);
        let refusal = Refusal::at_one_time("connections", cap);
        Self::new(ErrorCode::ConcurrencyLimited, sentence).with_refusal(refusal)
    }
}

/// The owner for whom a connection counts. All calls of the connection have it in their
/// [`CallOrigin`](crate::CallOrigin).
#[derive(Debug, Default)]
pub struct ConnectionAuth {
    /// `None`: its listener does not count connections.
    shares: Option<Arc<ConnectionShares>>,
    /// The owner of its last valid key.
    owner: Mutex<Option<OwnerId>>,
    ends: CancellationToken,
}

impl ConnectionAuth {
    /// Whether the last call with a key had a valid one.
    pub fn has_key(&self) -> bool {
        self.owner.lock().is_some()
    }

    /// Resolves when the connection must end once its calls are answered: its key is not valid any
    /// more, or its owner has too many connections.
    pub async fn ends(&self) {
        self.ends.cancelled().await;
    }

    /// Counts the connection for the owner of a valid key.
    ///
    /// # Errors
    /// [`OwnerAtShare`]: the connection ends, and counts for the owner of its last call.
    pub fn record_owner(&self, owner: &OwnerId) -> Result<(), OwnerAtShare> {
        let mut current = self.owner.lock();
        if current.as_ref() == Some(owner) {
            return Ok(());
        }
        if let Some(shares) = &self.shares {
            shares.add(owner).inspect_err(|_| self.ends.cancel())?;
            if let Some(before) = current.take() {
                shares.remove(before);
            }
        }
        *current = Some(owner.clone());
        Ok(())
    }

    /// A call had no valid key: if an earlier call had one, the connection ends.
    pub(crate) fn lose_key(&self) {
        if let Some(owner) = self.owner.lock().take() {
            self.ends.cancel();
            if let Some(shares) = &self.shares {
                shares.remove(owner);
            }
        }
    }
}

impl Drop for ConnectionAuth {
    fn drop(&mut self) {
        if let (Some(shares), Some(owner)) = (&self.shares, self.owner.get_mut().take()) {
            shares.remove(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::OwnedSemaphorePermit;

    use super::*;

    fn owner(name: &str) -> OwnerId {
        OwnerId::new(name).unwrap()
    }

    struct Listener {
        slots: Arc<Semaphore>,
        shares: Arc<ConnectionShares>,
    }

    impl Listener {
        fn new(connections_max: usize) -> Self {
            let slots = Arc::new(Semaphore::new(connections_max));
            Self { shares: ConnectionShares::new(slots.clone()), slots }
        }

        /// A connection with a call of the owner, unless the call is refused.
        fn open(&self, name: &str) -> Option<(OwnedSemaphorePermit, Arc<ConnectionAuth>)> {
            let slot = self.slots.clone().try_acquire_owned().expect("a free connection");
            let connection = self.shares.connection();
            connection.record_owner(&owner(name)).ok().map(|()| (slot, connection))
        }

        fn open_all(&self, name: &str) -> Vec<(OwnedSemaphorePermit, Arc<ConnectionAuth>)> {
            std::iter::from_fn(|| self.open(name)).collect()
        }
    }

    #[test]
    fn an_owner_leaves_a_quarter_of_the_connections_to_the_next() {
        let listener = Listener::new(64);
        let first = listener.open_all("a");
        let second = listener.open_all("b");
        let third = listener.open_all("c");
        assert_eq!([first.len(), second.len(), third.len()], [48, 12, 3]);
        drop(first);
        assert_eq!(listener.open_all("c").len(), 36, "what `a` held is free again");
        drop((second, third));
        assert!(listener.shares.held.lock().is_empty());
    }

    #[test]
    fn a_connection_counts_for_the_owner_of_its_last_valid_key() {
        let listener = Listener::new(8);
        let (_slot, connection) = listener.open("a").unwrap();
        connection.record_owner(&owner("b")).unwrap();
        let held = listener.shares.held.lock().clone();
        assert_eq!(held, HashMap::from([(owner("b"), 1)]));
        assert!(connection.has_key() && connection.ends().now_or_never().is_none());
        connection.lose_key();
        assert!(!connection.has_key() && connection.ends().now_or_never().is_some());
        assert!(listener.shares.held.lock().is_empty());
    }

    #[test]
    fn a_refused_connection_ends_and_counts_for_nobody() {
        let listener = Listener::new(4);
        let held = listener.open_all("a");
        assert_eq!(held.len(), 3);
        let _slot = listener.slots.clone().try_acquire_owned().unwrap();
        let refused = listener.shares.connection();
        assert_eq!(refused.record_owner(&owner("a")), Err(OwnerAtShare { held: 3 }));
        assert!(refused.ends().now_or_never().is_some() && !refused.has_key());
        assert_eq!(listener.shares.held.lock()[&owner("a")], 3);
        drop(held);
        assert!(listener.shares.held.lock().is_empty());
    }

    #[test]
    fn a_connection_that_never_had_a_key_does_not_end_for_a_wrong_one() {
        let listener = Listener::new(4);
        let connection = listener.shares.connection();
        connection.lose_key();
        assert!(connection.ends().now_or_never().is_none());
    }
}
