//! The origin of a call: its address and connection, which the listener knows, and the owner of its
//! key, which the check of the key records for the answer.
//!
//! **Cost.** Two allocations for each call, as many as the address and the connection would need in
//! the request's extensions by themselves. No lock.

use std::sync::{Arc, OnceLock};

use gristmill_core::id::OwnerId;
use gristmill_core::key::ApiKey;

use crate::unauthenticated::{ConnectionAuth, PeerAddress};

/// The origin of one call. [`Api::answer`](crate::Api::answer) adds it to the request's extensions.
#[derive(Debug)]
pub struct CallOrigin {
    peer: PeerAddress,
    connection_auth: Arc<ConnectionAuth>,
    /// Empty until a valid key of the call was seen.
    owner: OnceLock<OwnerId>,
}

impl CallOrigin {
    /// The origin of a call on a connection from `peer`.
    pub fn new(peer: PeerAddress, connection_auth: Arc<ConnectionAuth>) -> Self {
        Self { peer, connection_auth, owner: OnceLock::new() }
    }

    pub(crate) fn peer(&self) -> PeerAddress {
        self.peer
    }

    /// The owner of the call's key, if it has a valid one.
    pub(crate) fn owner(&self) -> Option<&OwnerId> {
        self.owner.get()
    }

    /// Records the valid key of the call.
    pub(crate) fn record_key(&self, key: &ApiKey) {
        self.connection_auth.record_key();
        // A call has one key, so a second check finds the same owner.
        let _ = self.owner.set(key.owner.clone());
    }
}

impl From<PeerAddress> for CallOrigin {
    /// The origin of the only call of its connection.
    fn from(peer: PeerAddress) -> Self {
        Self::new(peer, Arc::default())
    }
}
