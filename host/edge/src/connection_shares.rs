//! The connections that each owner holds, so that the keys of one owner cannot take all connections
//! of the host.
//!
//! A connection counts for the owner of its last valid key, and among that owner's keys for the
//! first one that it showed. Each owner has [a share](SharedBound) of the connections, on a host of
//! one owner too, so that there is always one for the next owner. The first connection of each key
//! is exempt, so that a key which was stolen can still be revoked; an eighth of all connections of
//! the listener may be exempt for one owner, so that many keys do not take all. The host refuses a
//! call that would exceed its owner's share, and ends the connection. It also ends a connection
//! whose key is no longer valid, at its next call at the latest; until its end, the connection
//! counts as before. Connections without a valid key count for no owner here and make no share
//! smaller: they [make room](crate::addresses) for connections with a key.
//!
//! **Cost.** A lock of the connection for each call; a lock that all connections share when the
//! first call of a connection has shown its key, when its owner changes, and at its end.

use std::sync::Arc;

use gristmill_core::id::{KeyId, OwnerId};
use gristmill_core::sharing::shares::{Fit, Holdings, SharedBound};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Connections of an owner beyond its share: one of so many of the listener, at least one.
const EXEMPT_PART: u64 = 8;

/// The connections of one listener, by owner.
#[derive(Debug)]
pub(crate) struct ConnectionShares {
    bound: SharedBound,
    /// Most exempt connections of an owner.
    exempt_max: u64,
    held: Mutex<HeldConnections>,
}

#[derive(Debug, Default)]
struct HeldConnections {
    of_owners: Holdings<OwnerId>,
    of_keys: Holdings<KeyId>,
    /// Those of each owner that were admitted beyond the share.
    exempt: Holdings<OwnerId>,
}

/// Whom a connection counts for.
#[derive(Debug, Clone)]
struct Holder {
    owner: OwnerId,
    /// The first key of this owner. A connection that changed to another key of its owner would
    /// leave the exempt place of the first one to the next connection, and so on: two keys would
    /// take all.
    key: KeyId,
    is_exempt: bool,
}

impl ConnectionShares {
    /// Counts the connections of a listener that may have so many at one time.
    pub(crate) fn new(connections_max: u32) -> Arc<Self> {
        let bound = SharedBound::always(connections_max.into());
        let exempt_max = (bound.max() / EXEMPT_PART).max(1);
        Arc::new(Self { bound, exempt_max, held: Mutex::default() })
    }

    /// A new connection, which counts for no owner yet.
    pub(crate) fn connection(self: &Arc<Self>) -> Arc<ConnectionAuth> {
        let (holder, ends) = (Mutex::default(), CancellationToken::new());
        Arc::new(ConnectionAuth { shares: Some(self.clone()), holder, ends })
    }

    /// Counts a connection for this owner, and no longer for `before`, who is another owner.
    /// Returns the holder for which it counts now.
    ///
    /// # Errors
    /// [`OwnerAtShare`]; nothing has changed.
    fn pass_on(
        &self,
        before: Option<&Holder>,
        owner: &OwnerId,
        key: &KeyId,
    ) -> Result<Holder, OwnerAtShare> {
        let mut connections = self.held.lock();
        // Those without a key are free, as they make room, and so is what `before` leaves.
        let used = connections.of_owners.all() - u64::from(before.is_some());
        let held = connections.of_owners.of(owner);
        let is_exempt = self.bound.fit(held, used, 1) != Fit::Fits;
        let is_first = connections.of_keys.of(key) == 0;
        if is_exempt && !(is_first && connections.exempt.of(owner) < self.exempt_max) {
            return Err(OwnerAtShare { held });
        }
        let holder = Holder { owner: owner.clone(), key: key.clone(), is_exempt };
        connections.add(&holder);
        if let Some(before) = before {
            connections.remove(before);
        }
        Ok(holder)
    }
}

impl HeldConnections {
    fn add(&mut self, holder: &Holder) {
        self.of_owners.add(&holder.owner, 1);
        self.of_keys.add(&holder.key, 1);
        self.exempt.add(&holder.owner, u64::from(holder.is_exempt));
    }

    fn remove(&mut self, holder: &Holder) {
        self.of_owners.remove(&holder.owner, 1);
        self.of_keys.remove(&holder.key, 1);
        self.exempt.remove(&holder.owner, u64::from(holder.is_exempt));
    }
}

/// The owner of a call has as many connections as one owner may have beside the others now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerAtShare {
    /// The owner's connections.
    pub held: u64,
}

/// The key that a connection counts for. All calls of the connection have it in their
/// [`CallOrigin`](crate::CallOrigin).
#[derive(Debug, Default)]
pub struct ConnectionAuth {
    /// `None`: its listener does not count connections.
    shares: Option<Arc<ConnectionShares>>,
    /// `None`: no call has had a valid key.
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
    pub(crate) async fn ends(&self) {
        self.ends.cancelled().await;
    }

    /// Whether the connection must end once its calls are answered.
    pub(crate) fn is_ending(&self) -> bool {
        self.ends.is_cancelled()
    }

    /// Ends the connection once its calls are answered.
    pub(crate) fn end(&self) {
        self.ends.cancel();
    }

    /// The owner that the connection counts for, and its key.
    pub(crate) fn holder(&self) -> Option<(OwnerId, KeyId)> {
        self.holder.lock().as_ref().map(|holder| (holder.owner.clone(), holder.key.clone()))
    }

    /// Counts the connection for a valid key.
    ///
    /// # Errors
    /// [`OwnerAtShare`]: the connection ends, and counts as before.
    pub(crate) fn record_key(&self, owner: &OwnerId, key: &KeyId) -> Result<(), OwnerAtShare> {
        let mut holder = self.holder.lock();
        if holder.as_ref().is_some_and(|holder| holder.owner == *owner) {
            return Ok(());
        }
        *holder = Some(match &self.shares {
            Some(shares) => {
                let passed_on = shares.pass_on(holder.as_ref(), owner, key);
                passed_on.inspect_err(|_| self.end())?
            }
            None => Holder { owner: owner.clone(), key: key.clone(), is_exempt: false },
        });
        Ok(())
    }

    /// Ends the connection after a call without a key, unless the key that it counts for
    /// `is_valid`. Otherwise a revoked key would keep its connections, by calls that need no key.
    pub(crate) fn check_key(&self, is_valid: impl FnOnce(&KeyId) -> bool) {
        let key = self.holder.lock().as_ref().map(|holder| holder.key.clone());
        if key.is_some_and(|key| !is_valid(&key)) {
            self.end();
        }
    }

    /// A call was refused for its key: if an earlier call had a valid one, the connection ends.
    pub(crate) fn lose_key(&self) {
        if self.has_key() {
            self.end();
        }
    }
}

impl Drop for ConnectionAuth {
    fn drop(&mut self) {
        if let (Some(shares), Some(holder)) = (&self.shares, self.holder.get_mut().take()) {
            shares.held.lock().remove(&holder);
        }
    }
}

#[cfg(test)]
#[path = "connection_shares_tests.rs"]
mod tests;
