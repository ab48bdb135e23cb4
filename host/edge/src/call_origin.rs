//! The origin of a call: its address and connection, which the listener knows, and the owner of its
//! key, which the check of the key records for the answer.
//!
//! **Cost.** Two allocations for each call, as many as the address and the connection would need in
//! the request's extensions by themselves.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use gristmill_core::id::{KeyId, OwnerId};

use crate::connection_shares::{ConnectionAuth, OwnerAtShare};

/// The address of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

impl PeerAddress {
    /// The address by which calls and connections are counted: for an IPv6 address its /64, and for
    /// an IPv4 address in IPv6 form the IPv4 address.
    pub fn known_as(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V6(v6) if !v6.is_loopback() => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
            address => address,
        }
    }
}

/// The origin of one call.
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

    /// The address of the caller.
    pub fn peer(&self) -> PeerAddress {
        self.peer
    }

    /// The owner of the call's key, if it has a valid one.
    pub fn owner(&self) -> Option<&OwnerId> {
        self.owner.get()
    }

    /// Whether a valid key of the call was seen.
    pub fn has_key(&self) -> bool {
        self.owner.get().is_some()
    }

    /// Whether any call of the connection has had a valid key so far.
    pub fn connection_has_key(&self) -> bool {
        self.connection_auth.has_key()
    }

    /// The owner and the id of the key that the call's connection counts for, if the call has a
    /// valid key.
    pub fn key(&self) -> Option<(OwnerId, KeyId)> {
        self.owner.get().and_then(|_| self.connection_auth.holder())
    }

    /// Records the valid key of the call.
    ///
    /// # Errors
    /// [`OwnerAtShare`]: the owner has too many connections.
    pub fn record_key(&self, owner: &OwnerId, key: &KeyId) -> Result<(), OwnerAtShare> {
        self.connection_auth.record_key(owner, key)?;
        // A call has one key, so a second check finds the same owner.
        let _ = self.owner.set(owner.clone());
        Ok(())
    }

    /// Records that the call has no valid key.
    pub fn record_no_key(&self) {
        self.connection_auth.lose_key();
    }

    /// After the call: ends its connection if the call has shown no valid key, and the key that the
    /// connection counts for is not valid any more.
    pub fn end_of_call(&self, is_valid: impl FnOnce(&KeyId) -> bool) {
        if self.owner.get().is_none() {
            self.connection_auth.check_key(is_valid);
        }
    }
}

impl From<PeerAddress> for CallOrigin {
    /// The origin of the only call of its connection.
    fn from(peer: PeerAddress) -> Self {
        Self::new(peer, Arc::default())
    }
}
