//! Why a caller waits for a permit, with the numbers that say how much is missing.

use super::capacity::{Capacity, Holders, PermitAmount, PermitFit, Request};

/// Why there is no room for a permit of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitShortage {
    /// The holder of the missing slots or bytes.
    pub cause: ShortageCause,
    /// The bytes that the permit needs, if bytes are missing; a slot is missing otherwise.
    pub needed_bytes: Option<u64>,
    /// The slots or the bytes that the owner or the endpoint of the cause has, otherwise those that
    /// are taken or withheld.
    pub held: u64,
    /// All slots or all bytes.
    pub max: u64,
}

/// The holder of the missing slots or bytes, or the reason why no holder gets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortageCause {
    /// All of it is taken.
    OfHost,
    /// Nothing is missing, but other callers are before this one.
    OfOrder,
    /// Bytes are [withheld](super::Permits::withhold).
    OfMachine,
    /// The owner has its share, and the rest is kept free for other owners.
    OfOwner,
    /// The endpoint has its share, and the rest is kept free for other endpoints and called jobs.
    OfEndpoint,
    /// The rest is kept free for jobs that handlers call.
    OfClients,
    /// The rest is reserved by other endpoints.
    OfReserves,
}

impl PermitShortage {
    /// Why the request waits now.
    pub(super) fn of(capacity: &Capacity, holders: &Holders, request: Request) -> Self {
        let all = || capacity.taken + PermitAmount { slots: 0, bytes: capacity.withheld };
        let of_owner = || holders.owner.all;
        let of_part = || holders.part.unwrap_or_default().all;
        let (cause, held, is_of_bytes) = match capacity.fit(holders, request) {
            PermitFit::NoBytes if capacity.withheld > 0 => (ShortageCause::OfMachine, all(), true),
            PermitFit::NoBytes => (ShortageCause::OfHost, all(), true),
            PermitFit::Fits => (ShortageCause::OfOrder, all(), false),
            PermitFit::NoSlot => (ShortageCause::OfHost, all(), false),
            PermitFit::Kept => (ShortageCause::OfClients, all(), false),
            PermitFit::Reserved => (ShortageCause::OfReserves, all(), false),
            PermitFit::OwnerSlots => (ShortageCause::OfOwner, of_owner(), false),
            PermitFit::OwnerBytes => (ShortageCause::OfOwner, of_owner(), true),
            PermitFit::PartSlots => (ShortageCause::OfEndpoint, of_part(), false),
            PermitFit::PartBytes => (ShortageCause::OfEndpoint, of_part(), true),
        };
        let max = capacity.max();
        match is_of_bytes {
            true => {
                let (needed_bytes, held, max) = (Some(request.amount.bytes), held.bytes, max.bytes);
                Self { cause, needed_bytes, held, max }
            }
            false => Self { cause, needed_bytes: None, held: held.slots, max: max.slots },
        }
    }
}
