//! The sandboxes that are reserved for endpoints with `workersMin`.
//!
//! **Promise.** An endpoint has as many sandboxes as its `workersMin` at any time, with the memory
//! that its attempts are estimated to need, however busy the others are. All endpoints together
//! have half of the host's sandboxes reserved at most.
//! **Bounds.** One entry for each endpoint with `workersMin`. **Cost.** One lock for each ended
//! attempt of these endpoints, and one more if its estimate has changed.

use std::collections::HashMap;

use gristmill_core::id::EndpointId;
use gristmill_core::sharing::permits::PermitShare;
use parking_lot::Mutex;

/// The reserves of all endpoints.
#[derive(Debug, Default)]
pub(crate) struct Reserves(Mutex<HashMap<EndpointId, Reserve>>);

/// The reserve of one endpoint.
#[derive(Debug)]
pub(crate) struct Reserve {
    pub(crate) share: PermitShare,
    pub(crate) sandboxes: u32,
    /// Bytes of each.
    pub(crate) bytes: u64,
}

impl Reserves {
    /// The reserve of an endpoint from now on; `None` when it was deleted.
    pub(crate) fn set(&self, endpoint: &EndpointId, reserve: Option<Reserve>) {
        let mut reserves = self.0.lock();
        let reserve = reserve.filter(|reserve| reserve.sandboxes > 0);
        // Its owner may be another one than before.
        let stays = |before: &Reserve| {
            reserve.as_ref().is_some_and(|now| now.share.holder() == before.share.holder())
        };
        if let Some(before) = reserves.remove(endpoint).filter(|before| !stays(before)) {
            before.share.reserve(0, 0);
        }
        if let Some(reserve) = reserve {
            reserve.share.reserve(reserve.sandboxes.into(), reserve.bytes);
            reserves.insert(endpoint.clone(), reserve);
        }
    }

    /// The attempts of an endpoint are estimated to need so many bytes.
    pub(crate) fn resize(&self, endpoint: &EndpointId, bytes: u64) {
        let mut reserves = self.0.lock();
        if let Some(reserve) = reserves.get_mut(endpoint)
            && std::mem::replace(&mut reserve.bytes, bytes) != bytes
        {
            reserve.share.reserve(reserve.sandboxes.into(), bytes);
        }
    }
}
