//! The connections that each owner holds, so that the keys of one owner cannot take all connections of
//! the host.
//!
//! A connection counts for the owner of its last valid key. An owner holds at most [three times as
//! many](fair_share) connections as are left free, so there is always one for the next owner. The
//! first connection of each key is exempt, so that a key which was stolen can still be revoked. The host
//! refuses a call that would exceed its owner's share, and ends the connection. It also ends a connection
//! whose key is no longer valid; until its end, the connection counts as before. Connections without a
//! valid key are bounded by their address.
//!
//! **Cost.** A lock of the connection for each call; a lock that all connections share when the first
//! call of a connection has shown its key, when its key changes, and at its end.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_core::fair_share;
use gristmill_core::id::{KeyId, OwnerId};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::error::{ApiError, ErrorCode};
use crate::refusal::Refusal;

/// The connections of one listener, by owner.
#[derive(Debug)]
pub struct ConnectionShares {
    /// Each connection holds a permit.
    free: Arc<Semaphore>,
    held: Mutex<HashMap<OwnerId, Held>>,
}

/// The connections of an owner.
#[derive(Debug, Default)]
struct Held {
    all: u64,
    /// Those of each key; a key without any is absent.
    of_keys: HashMap<KeyId, u64>,
}

/// The owner and the key of the last valid call of a connection.
type Holder = (OwnerId, KeyId);

impl ConnectionShares {
    /// Counts the connections of a listener. Each connection holds a permit of `free`.
    pub fn new(free: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { free, held: Mutex::default() })
    }

    /// A new connection, which counts for no owner yet.
    pub fn connection(self: &Arc<Self>) -> Arc<ConnectionAuth> {
        let (holder, ends) = (Mutex::default(), CancellationToken::new());
        Arc::new(ConnectionAuth { shares: Some(self.clone()), holder, ends })
    }

    /// Counts a connection for `after`, and no longer for `before`.
    ///
    /// # Errors
    /// [`OwnerAtShare`]; nothing has changed.
    fn pass_on(&self, before: Option<&Holder>, after: &Holder) -> Result<(), OwnerAtShare> {
        // The connection itself is not free any more.
        let free = self.free.available_permits() as u64;
        let mut all = self.held.lock();
        let (owner, key) = after;
        let held = all.entry(owner.clone()).or_default();
        let is_new = before.is_none_or(|(before, _)| before != owner);
        let is_first = !held.of_keys.contains_key(key);
        if is_new && !is_first && !fair_share::admits(held.all + 1, free) {
            return Err(OwnerAtShare { held: held.all });
        }
        held.all += 1;
        *held.of_keys.entry(key.clone()).or_default() += 1;
        if let Some(before) = before {
            Self::remove(&mut all, before);
        }
        Ok(())
    }

    fn remove(all: &mut HashMap<OwnerId, Held>, (owner, key): &Holder) {
        let Some(held) = all.get_mut(owner) else { return };
        held.all -= 1;
        if let Some(of_key) = held.of_keys.get_mut(key) {
            *of_key -= 1;
            if *of_key == 0 {
                held.of_keys.remove(key);
            }
        }
        if held.all == 0 {
            all.remove(owner);
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
            "this owner's keys hold {held} connections, the most that one owner may hold now; close \
             some, or send more calls on each"
        );
        let cap = u32::try_from(held).unwrap_or(u32::MAX);
        let refusal = Refusal::at_one_time("connections", cap);
        Self::new(ErrorCode::ConcurrencyLimited, sentence).with_refusal(refusal)
    }
}

/// The key that a connection counts for. All calls of the connection have it in their
/// [`CallOrigin`](crate::CallOrigin).
#[derive(Debug, Default)]
pub struct ConnectionAuth {
    /// `None`: its listener does not count connections.
    shares: Option<Arc<ConnectionShares>>,
    /// Those of its last valid key.
    holder: Mutex<Option<Holder>>,
    ends: CancellationToken,
}

impl ConnectionAuth {
    /// Whether a call has had a valid key.
    pub fn has_key(&self) -> bool {
        self.holder.lock().is_some()
    }

    /// Resolves when the connection must end once its calls are answered: its key is not valid any
    /// more, or its owner has too many connections.
    pub async fn ends(&self) {
        self.ends.cancelled().await;
    }

    /// Whether the connection must end once its calls are answered.
    pub fn is_ending(&self) -> bool {
        self.ends.is_cancelled()
    }

    /// Counts the connection for a valid key.
    ///
    /// # Errors
    /// [`OwnerAtShare`]: the connection ends, and counts as before.
    pub fn record_key(&self, owner: &OwnerId, key: &KeyId) -> Result<(), OwnerAtShare> {
        let mut holder = self.holder.lock();
        if holder.as_ref().is_some_and(|(own, last)| own == owner && last == key) {
            return Ok(());
        }
        let after = (owner.clone(), key.clone());
        if let Some(shares) = &self.shares {
            let passed_on = shares.pass_on(holder.as_ref(), &after);
            passed_on.inspect_err(|_| self.ends.cancel())?;
        }
        *holder = Some(after);
        Ok(())
    }

    /// A call was refused for its key: if an earlier call had a valid one, the connection ends.
    pub(crate) fn lose_key(&self) {
        if self.has_key() {
            self.ends.cancel();
        }
    }
}

impl Drop for ConnectionAuth {
    fn drop(&mut self) {
        if let (Some(shares), Some(holder)) = (&self.shares, self.holder.get_mut().take()) {
            ConnectionShares::remove(&mut shares.held.lock(), &holder);
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

    fn key(name: &str) -> KeyId {
        KeyId::new(name).unwrap()
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
            connection.record_key(&owner(name), &key("k")).ok().map(|()| (slot, connection))
        }

        /// The owners with connections, and how many.
        fn held(&self) -> Vec<(String, u64)> {
            let held = self.shares.held.lock();
            let mut all: Vec<_> =
                held.iter().map(|(owner, held)| (owner.to_string(), held.all)).collect();
            all.sort();
            all
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
        assert_eq!(listener.held(), []);
    }

    #[test]
    fn a_connection_counts_for_the_owner_of_its_last_valid_key() {
        let listener = Listener::new(8);
        let (_slot, connection) = listener.open("a").unwrap();
        connection.record_key(&owner("b"), &key("k")).unwrap();
        connection.record_key(&owner("b"), &key("l")).unwrap();
        assert_eq!(listener.held(), [("b".to_owned(), 1)]);
        assert!(connection.has_key() && connection.ends().now_or_never().is_none());
        connection.lose_key();
        assert!(connection.is_ending() && connection.ends().now_or_never().is_some());
        assert_eq!(listener.held(), [("b".to_owned(), 1)], "it may have long calls");
        drop(connection);
        assert_eq!(listener.held(), []);
    }

    #[test]
    fn a_key_without_a_connection_gets_one_although_its_owner_is_at_the_share() {
        let listener = Listener::new(40);
        let held = listener.open_all("a");
        let _slot = listener.slots.clone().try_acquire_owned().unwrap();
        let (first, second) = (listener.shares.connection(), listener.shares.connection());
        assert_eq!(first.record_key(&owner("a"), &key("admin")), Ok(()));
        assert!(second.record_key(&owner("a"), &key("admin")).is_err());
        drop((held, first));
        assert_eq!(listener.held(), []);
    }

    #[test]
    fn a_refused_connection_ends_and_counts_for_no_owner() {
        let listener = Listener::new(4);
        let held = listener.open_all("a");
        assert_eq!(held.len(), 3);
        let _slot = listener.slots.clone().try_acquire_owned().unwrap();
        let refused = listener.shares.connection();
        assert_eq!(refused.record_key(&owner("a"), &key("k")), Err(OwnerAtShare { held: 3 }));
        assert!(refused.is_ending() && !refused.has_key());
        assert_eq!(listener.held(), [("a".to_owned(), 3)]);
        drop(held);
        assert_eq!(listener.held(), []);
    }

    #[test]
    fn a_connection_that_never_had_a_key_does_not_end_for_a_wrong_one() {
        let listener = Listener::new(4);
        let connection = listener.shares.connection();
        connection.lose_key();
        assert!(connection.ends().now_or_never().is_none());
    }
}
