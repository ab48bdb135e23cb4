//! Permits for what all owners share: slots, such as sandboxes, file operations or KiB of memory,
//! and for sandboxes also the bytes of memory of all slots together.
//!
//! **Promise.** The sum of all permits never exceeds the limits, and no owner holds more than its
//! share ([`capacity`]). The owner that holds the least is next, by the larger one of its parts of
//! the slots and of the bytes, and of equals the one whose last turn is the longest ago. Then come
//! the endpoints or keys of that owner, those with the deepest [`Level`] first, and the callers of
//! each by their levels and then in the order of their calls. A caller that waits for the part of
//! its own endpoint or owner, or for a slot at its level, delays no other owner and no deeper
//! level.
//!
//! There are two kinds of permits:
//!
//! * [`new`](Permits::new): for what a job keeps, up to a week. Owners have shares while the host
//!   has several, and endpoints while their owner has several: none keeps another one from its
//!   first slot. While handlers may call endpoints, some slots are kept for called jobs. The
//!   endpoints of an owner take turns. A request of a client's job for more bytes than are free
//!   delays the later endpoints of its owner, and the owners that would then hold more bytes than
//!   its owner would. It does so for a [quarter](holds) of the time, since the memory that it waits
//!   for may be in use for days.
//!   An endpoint may have a [reserve](PermitShare::reserve) of slots.
//! * [`for_work`](Permits::for_work): for short work. Owners always have shares. An endpoint or a
//!   key holds at most a quarter, since a slow one must not delay the others of its owner, and the
//!   one that holds the fewest is next. A request for more slots than are free delays all that come
//!   after it.
//!
//! A permit [grows and shrinks](growth) with the memory of its job. A growth waits in the same
//! order, before the requests of its endpoint for slots.
//!
//! Where callers have no key, their addresses have the shares of owners ([`Sharer`]).
//!
//! Without these delays, a stream of small requests would starve a large one.
//!
//! **Cost.** Taking a free permit, and returning it, each cost one uncontended lock and four looks
//! into maps. A waiting caller also costs a channel. Ordered sets
//! ([`turns`](crate::sharing::turns)) show the next waiter, and whether any waiter asks for as few
//! bytes as are free: 2 µs for each permit that is returned while 1,000 owners wait. It is 0.2 ms
//! while some bytes are free that shares and holds keep from all waiters, since all waiting owners
//! are examined then, and up to 64 endpoints of each. An owner, and an endpoint, takes some 400
//! bytes while it holds or awaits permits.

mod capacity;
mod growth;
mod holds;
mod line;
mod sharer;
mod shortage;

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::id::{EndpointId, KeyId, OwnerId};
use crate::sharing::cores::cores;
use crate::sharing::shares::{Level, SharedBound};
use crate::sharing::tenancy::Tenancy;

use self::capacity::{Capacity, Held, Holders, Parts, PermitFit, Request, Reserve, owner_max};
pub use self::capacity::{PermitAmount, reservable};
use self::line::{Holder, Line, OwnerPart};
pub use self::sharer::Sharer;
pub use self::shortage::{PermitShortage, ShortageCause};

/// The permits for one resource. A clone shares them.
pub struct Permits<O: Sharer = OwnerId>(Arc<Shared<O>>);

impl<O: Sharer> Clone for Permits<O> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Shared<O: Sharer> {
    permit_max: PermitAmount,
    /// Also a part of the capacity: it is read here without the lock.
    bytes: SharedBound,
    line: Mutex<Line<O, Permit<O>>>,
}

/// The right of an endpoint, a key or an owner to ask for permits. It holds none by itself.
#[derive(Debug, Clone)]
pub struct PermitShare<O: Sharer = OwnerId> {
    permits: Permits<O>,
    holder: Holder<O>,
}

/// The right to some slots and bytes. Dropping it returns them.
#[must_use]
#[derive(Debug)]
pub struct Permit<O: Sharer = OwnerId> {
    share: PermitShare<O>,
    request: Request,
}

/// The bytes of all slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PermitBytes {
    /// All of them.
    pub max: u64,
    /// Those that are taken.
    pub taken: u64,
    /// Those that no holder gets now.
    pub withheld: u64,
    /// How many permits wait to grow.
    pub growing: u64,
}

/// Idle permits, and what those who need a permit would have without them.
struct IdlePermits<'p, O: Sharer> {
    /// The place and the holder of each.
    holders: Vec<(usize, &'p Holder<O>)>,
    all: Held,
    of_owners: HashMap<&'p O, Held>,
    of_parts: HashMap<&'p Holder<O>, Held>,
}

impl<O: Sharer> Permits<O> {
    /// Permits for what jobs keep: so many slots with so many bytes together, shared among the
    /// owners and endpoints of this host while it has several, and with called jobs.
    pub fn new(slots_max: usize, bytes_max: u64, tenancy: Tenancy) -> Self {
        let slots = SharedBound::new(slots_max as u64, tenancy.clone());
        let bytes = SharedBound::new(bytes_max, tenancy.clone());
        Self::of(Capacity::new(slots, bytes, Parts::OfJobs(tenancy)))
    }

    /// Permits for short work: so many slots, at least one, shared on a host of one owner too.
    /// Where a quarter would be less than one slot it is one; with a single slot, a caller then
    /// waits for at most one permit of each other owner.
    pub fn for_work(slots_max: usize) -> Self {
        Self::with_parts(SharedBound::always(slots_max.max(1) as u64))
    }

    /// As many permits for short work as half of the cores, for work that keeps a core busy.
    pub fn half_of_cores() -> Self {
        Self::for_work(cores() / 2)
    }

    /// Permits for short work, with this rule for owners.
    pub fn with_parts(slots: SharedBound) -> Self {
        let parts = Parts::OfWork { slots_max: (slots.max() / 4).max(1) };
        Self::of(Capacity::new(slots, SharedBound::always(0), parts))
    }

    fn of(capacity: Capacity) -> Self {
        let permit_max = capacity.permit_max();
        let bytes = capacity.bytes.clone();
        Self(Arc::new(Shared { permit_max, bytes, line: Mutex::new(Line::new(capacity)) }))
    }

    /// The share of an endpoint.
    pub fn share(&self, owner: &O, endpoint: &EndpointId) -> PermitShare<O> {
        self.share_of(owner, OwnerPart::Endpoint(endpoint.clone()))
    }

    /// The share of a key, which is as large as an endpoint's.
    pub fn share_of_key(&self, owner: &O, key: &KeyId) -> PermitShare<O> {
        self.share_of(owner, OwnerPart::Key(key.clone()))
    }

    /// The share of an owner, for work that belongs to no endpoint.
    pub fn owner_share(&self, owner: &O) -> PermitShare<O> {
        self.share_of(owner, OwnerPart::Rest)
    }

    fn share_of(&self, owner: &O, part: OwnerPart) -> PermitShare<O> {
        PermitShare { permits: self.clone(), holder: Holder { owner: owner.clone(), part } }
    }

    /// All bytes of this host's slots together.
    pub fn bytes_max(&self) -> u64 {
        self.0.permit_max.bytes
    }

    /// Most bytes of one permit: all of them, or three quarters while owners have shares.
    pub fn bytes_of_owner_max(&self) -> u64 {
        owner_max(&self.0.bytes)
    }

    /// The bytes of all slots.
    pub fn bytes(&self) -> PermitBytes {
        let line = self.0.line.lock();
        let Capacity { taken, withheld, .. } = line.capacity;
        let (max, growing) = (self.bytes_max(), line.growing as u64);
        PermitBytes { max, taken: taken.bytes, withheld, growing }
    }

    /// Grants nothing of so many bytes from now on, which are missing elsewhere.
    pub fn withhold(&self, bytes: u64) {
        let before = std::mem::replace(&mut self.0.line.lock().capacity.withheld, bytes);
        if bytes < before {
            self.serve();
        }
    }

    /// How many slots are taken.
    pub fn taken(&self) -> usize {
        let slots = self.0.line.lock().capacity.taken.slots;
        usize::try_from(slots).unwrap_or(usize::MAX)
    }

    /// How many callers wait for a permit.
    pub fn waiting(&self) -> usize {
        self.0.line.lock().waiting
    }

    /// Grants all permits that there is room for. To be called when the owners of the host may have
    /// changed.
    pub fn serve(&self) {
        loop {
            let next = self.0.line.lock().next();
            let Some((holder, waiter)) = next else { return };
            let request = waiter.request();
            let share = PermitShare { permits: self.clone(), holder };
            // Outside the lock: if a waiter has just left, its permit is dropped here, which takes
            // the lock.
            drop(waiter.grant.permit.send(Permit { share, request }));
        }
    }

    /// Serves again whenever a hold has ended, for as long as callers wait for bytes.
    fn watch(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut line = self.0.line.lock();
        let is_held = self.bytes_max() > 0 && line.waiting > 0;
        if !is_held || std::mem::replace(&mut line.is_watched, true) {
            return;
        }
        let permits = self.clone();
        drop(runtime.spawn(async move {
            loop {
                tokio::time::sleep(holds::STEP).await;
                permits.serve();
                let mut line = permits.0.line.lock();
                line.is_watched = line.waiting > 0;
                if !line.is_watched {
                    return;
                }
            }
        }));
    }

    /// The place of the first of these idle permits with which a waiter is nearer to its own.
    pub fn wanted<'p>(&self, idle: impl Iterator<Item = &'p Permit<O>> + Clone) -> Option<usize> {
        let line = self.0.line.lock();
        let all = IdlePermits::of(idle.clone(), &line, false);
        let spare = IdlePermits::of(idle, &line, true);
        line.first_waiters().find_map(|(holder, holders, request)| {
            // Nobody else gets the slots of a reserve, and a growth needs none.
            let idle = if request.grows_since.is_some() { &all } else { &spare };
            let own = idle.of_owners.get(&holder.owner).copied();
            let of_part = idle.of_parts.get(&holder).copied().unwrap_or_default();
            let after = Holders {
                owner: holders.owner - own.unwrap_or_default(),
                part: holders.part.map(|held| held - of_part),
                ..holders
            };
            if line.capacity.fit_after(&after, request, idle.all.all) != PermitFit::Fits {
                return None;
            }
            let only_own = own.is_some() && line.capacity.fit(&holders, request).is_share();
            let helps = |of: &Holder<O>| !only_own || of.owner == holder.owner;
            idle.holders.iter().find(|(_, of)| helps(of)).map(|(place, _)| *place)
        })
    }
}

impl<'p, O: Sharer> IdlePermits<'p, O> {
    /// Those of the permits that are beyond the reserves of their endpoints, or all.
    fn of(
        idle: impl Iterator<Item = &'p Permit<O>>,
        line: &Line<O, Permit<O>>,
        only_spare: bool,
    ) -> Self {
        let (holders, all, of_owners, of_parts) = Default::default();
        let mut these = Self { holders, all, of_owners, of_parts };
        for (place, Permit { share: PermitShare { holder, .. }, request }) in idle.enumerate() {
            let of_part = these.of_parts.entry(holder).or_default();
            let held = Held::from(*request);
            if only_spare && (*of_part + held).all.slots > line.beyond_reserve(holder) {
                continue;
            }
            *of_part = *of_part + held;
            let of_owner = these.of_owners.entry(&holder.owner).or_default();
            *of_owner = *of_owner + held;
            these.all = these.all + held;
            these.holders.push((place, holder));
        }
        these
    }
}

impl<O: Sharer> PermitShare<O> {
    /// The endpoint, the key or the owner that has it.
    pub fn holder(&self) -> &(impl Eq + Hash + use<O>) {
        &self.holder
    }

    /// How many callers of the owner wait.
    pub fn waiting(&self) -> usize {
        self.permits.0.line.lock().waiting_of(&self.holder.owner)
    }

    /// Reserves so many slots for the endpoint, of so many bytes each, in place of its earlier
    /// reserve. All reserves together have half of the slots at most; what is beyond it is not
    /// reserved.
    pub fn reserve(&self, slots: u64, bytes: u64) {
        self.permits.0.line.lock().reserve(&self.holder, Reserve { slots, bytes });
        // Others may use what is reserved no more.
        self.permits.serve();
    }

    /// The reason for which a client's job waits for a slot with so many bytes.
    pub fn shortage(&self, bytes: u64) -> PermitShortage {
        let request = Request::new(PermitAmount::one(bytes), Level::CLIENT);
        let line = self.permits.0.line.lock();
        PermitShortage::of(&line.capacity, &line.holders(&self.holder), request)
    }

    /// A permit for a slot with so many bytes at this level, if one is free and no caller waits for
    /// it.
    pub fn try_take(&self, bytes: u64, level: Level) -> Option<Permit<O>> {
        self.try_take_request(Request::new(PermitAmount::one(bytes), level))
    }

    fn try_take_request(&self, request: Request) -> Option<Permit<O>> {
        let is_taken = self.permits.0.line.lock().try_take(&self.holder, request);
        is_taken.then(|| Permit { share: self.clone(), request })
    }

    /// Waits for a slot without bytes.
    pub async fn acquire(&self) -> Permit<O> {
        self.acquire_many(1).await
    }

    /// Waits for so many slots without bytes, or for as many as an endpoint may hold when that is
    /// less.
    pub async fn acquire_many(&self, slots: usize) -> Permit<O> {
        let slots = (slots as u64).clamp(1, self.permits.0.permit_max.slots);
        let amount = PermitAmount { slots, bytes: 0 };
        let request = Request::new(amount, Level::CLIENT);
        match self.try_take_request(request) {
            Some(permit) => permit,
            None => self.join(request).await,
        }
    }

    /// Joins the queue for a slot with so many bytes at this level. The future resolves to the
    /// permit; dropping the future leaves the queue. A request for more than all bytes counts as
    /// one for all bytes, so that every wait can end.
    pub fn queue(
        &self,
        bytes: u64,
        level: Level,
    ) -> impl Future<Output = Permit<O>> + Send + use<O> {
        let amount = PermitAmount::one(bytes.min(self.permits.bytes_max()));
        self.join(Request::new(amount, level))
    }

    fn join(&self, request: Request) -> impl Future<Output = Permit<O>> + Send + use<O> {
        let (permit, granted) = oneshot::channel();
        let number = self.permits.0.line.lock().push(&self.holder, request, permit);
        let position = WaiterPosition { share: self.clone(), number };
        // There may be room by now, and the queue may have been empty.
        self.permits.serve();
        self.permits.watch();
        async move {
            let permit = granted.await.expect("only its own future removes a waiter");
            drop(position);
            permit
        }
    }
}

impl<O: Sharer> Permit<O> {
    /// The owner that holds it.
    pub fn owner(&self) -> &O {
        &self.share.holder.owner
    }

    /// The slots and the bytes that it permits.
    pub fn amount(&self) -> PermitAmount {
        self.request.amount
    }

    /// Uses it at another level, if the slots that are kept for deeper levels are free.
    pub fn try_move(&mut self, level: Level) -> bool {
        let Self { share: PermitShare { permits, holder }, request } = self;
        let moved = permits.0.line.lock().try_move(holder, *request, level);
        *request = moved.unwrap_or(*request);
        moved.is_some()
    }
}

/// A waiter's position in the queue. Dropping it leaves the queue.
struct WaiterPosition<O: Sharer> {
    share: PermitShare<O>,
    number: u64,
}

impl<O: Sharer> Drop for WaiterPosition<O> {
    fn drop(&mut self) {
        let Self { share: PermitShare { permits, holder }, number } = self;
        permits.0.line.lock().leave(holder, *number);
        // The waiter may have been a large one that held up the others.
        permits.serve();
    }
}

impl<O: Sharer> Drop for Permit<O> {
    fn drop(&mut self) {
        let Self { share: PermitShare { permits, holder }, request } = self;
        let is_wanted = permits.0.line.lock().give_back(holder, *request);
        if is_wanted {
            permits.serve();
        }
    }
}

impl<O: Sharer> Debug for Permits<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (taken, waiting) = (self.taken(), self.waiting());
        f.debug_struct("Permits").field("taken", &taken).field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
mod level_tests;
#[cfg(test)]
mod owner_tests;
#[cfg(test)]
mod reserve_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod work_tests;
