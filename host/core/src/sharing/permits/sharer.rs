//! The holders of shares.

use std::fmt::Debug;
use std::hash::Hash;
use std::net::IpAddr;

use crate::id::OwnerId;
use crate::sharing::tenancy::Tenancy;

/// A holder of a share of the permits: an owner, or the address of a caller without a key.
pub trait Sharer: Debug + Clone + Eq + Hash + Send + Sync + 'static {
    /// Whether it shares what it may hold among several endpoints.
    fn has_several_endpoints(&self, _tenancy: &Tenancy) -> bool {
        false
    }
}

impl Sharer for OwnerId {
    fn has_several_endpoints(&self, tenancy: &Tenancy) -> bool {
        tenancy.has_several_endpoints(self)
    }
}

impl Sharer for IpAddr {}
