//! The outbox in memory: pending webhooks in the order of their next attempts, and each endpoint's
//! log of deliveries. Memory has everything that is on disk except the bodies.
//!
//! **Bounds.** [`DELIVERIES_PENDING_MAX`] and [`DELIVERIES_PENDING_URL_BYTES_MAX`] for each
//! endpoint, and the share of the disk of each owner, in which the bodies count. The memory of all
//! pending deliveries is bounded by the [owners](crate::state::owners), that of all ended ones by
//! [`ENDED_BYTES_MAX`](ended::ENDED_BYTES_MAX).
//! **Cost.** Some 800 bytes and the URL for each delivery, and some 300 bytes for each receiver
//! that deliveries wait for. No operation examines all deliveries of an endpoint, except the
//! endpoint's deletion.

mod ended;
mod schedule;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::id::{JobId, OwnerId};
use gristmill_core::sharing::disk_share::DiskCharge;
use gristmill_core::sharing::shares::Holdings;
use gristmill_core::time::{Clock, Timestamp};
use gristmill_core::webhook::delivery::{
    ARRIVALS_MAX, DELIVERIES_PENDING_MAX, DELIVERIES_PENDING_URL_BYTES_MAX, DELIVERY_LOG_MAX,
    Delivery, DeliveryId, DeliveryState, DueDeliveries, OwnerOf, RETRY_INTERVAL_MS,
};

use self::ended::Ended;
use self::schedule::{Path, Schedule};
use crate::medium::PayloadLocation;
use crate::state::owners::OwnerKey;
use crate::state::pending_bytes::{PendingBytes, delivery_bytes};

/// About the memory of a delivery, in bytes.
fn memory_of(delivery: &Delivery) -> u64 {
    let trace_state = delivery.trace.as_ref().and_then(|trace| trace.state.as_str());
    delivery_bytes(delivery.url.len() + trace_state.map_or(0, str::len))
}

/// The time by both measures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    wall: Timestamp,
    elapsed: Duration,
}

impl Moment {
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        Self { wall: clock.now(), elapsed: clock.elapsed() }
    }
}

/// The deliveries of all endpoints; a `K` identifies an endpoint.
#[derive(Debug)]
pub(crate) struct Outbox<K> {
    rows: BTreeMap<DeliveryId, DeliveryRow<K>>,
    /// Pending deliveries that [`Outbox::begin`] has not seen yet.
    arrived: VecDeque<DeliveryId>,
    /// Pending deliveries that wait until a time, by [`Clock::elapsed`].
    asleep: BTreeSet<(Duration, DeliveryId)>,
    schedule: Schedule<K>,
    /// The owners of the endpoints in the schedule.
    owners: BTreeMap<K, Option<OwnerId>>,
    /// The attempts that have begun and whose end was not reported; their rows may be removed
    /// already.
    in_flight: BTreeMap<DeliveryId, Path<K>>,
    logs: BTreeMap<K, Log>,
    /// The memory of the pending deliveries.
    pending: Holdings<OwnerKey>,
    ended: Ended,
    last_id: u64,
    /// Most pending deliveries of one endpoint.
    pub(crate) pending_max: usize,
}

#[derive(Debug)]
struct DeliveryRow<K> {
    endpoint: K,
    owner: OwnerKey,
    delivery: Delivery,
    target: Arc<str>,
    stage: Stage,
    /// The location of the body, while it is in the journal.
    body: Option<PayloadLocation>,
    /// Counts the body of a pending delivery in the account of its owner.
    charge: Option<DiskCharge>,
}

/// The stage of a delivery in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// In `arrived`.
    Arrived,
    /// In `arrived`, after an attempt that was not made.
    PutBack,
    /// In `asleep`, under this time.
    Asleep(Duration),
    /// In the schedule.
    Ready,
    UnderWay,
    Ended,
}

/// The deliveries of one endpoint.
#[derive(Debug, Default)]
struct Log {
    all: BTreeSet<DeliveryId>,
    /// The deliveries that have ended.
    ended: BTreeSet<DeliveryId>,
    /// Bytes of the URLs of the pending deliveries.
    pending_url_bytes: usize,
}

impl<K> Default for Outbox<K> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            arrived: VecDeque::new(),
            asleep: BTreeSet::new(),
            schedule: Schedule::default(),
            owners: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            logs: BTreeMap::new(),
            pending: Holdings::default(),
            ended: Ended::default(),
            last_id: 0,
            pending_max: DELIVERIES_PENDING_MAX,
        }
    }
}

impl<K: Ord + Clone> Outbox<K> {
    /// The number of deliveries that are still to be made. Costs a look at each endpoint with
    /// deliveries.
    pub(crate) fn waiting(&self) -> u64 {
        self.logs.values().map(|log| (log.all.len() - log.ended.len()) as u64).sum()
    }

    /// A number that no delivery has used.
    pub(crate) fn next_id(&mut self) -> DeliveryId {
        self.last_id += 1;
        DeliveryId(self.last_id)
    }

    /// Whether the endpoint has as many pending deliveries as it may have.
    pub(crate) fn is_full(&self, endpoint: &K) -> bool {
        let Some(log) = self.logs.get(endpoint) else { return false };
        log.all.len() - log.ended.len() >= self.pending_max
            || log.pending_url_bytes >= DELIVERIES_PENDING_URL_BYTES_MAX
    }

    /// The memory of pending deliveries, of this owner and of all owners.
    pub(crate) fn pending_bytes(&self, owner: OwnerKey) -> PendingBytes {
        PendingBytes { of_owner: self.pending.of(&owner), of_all: self.pending.all() }
    }

    pub(crate) fn get(&self, id: DeliveryId) -> Option<&Delivery> {
        self.rows.get(&id).map(|row| &row.delivery)
    }

    /// No later delivery takes this number.
    pub(crate) fn use_up(&mut self, id: DeliveryId) {
        self.last_id = self.last_id.max(id.0);
    }

    /// Adds a delivery of a job of this owner. Returns the old deliveries that are dropped from the
    /// logs for it.
    pub(crate) fn add(
        &mut self,
        endpoint: K,
        owner: OwnerKey,
        delivery: Delivery,
    ) -> Vec<DeliveryId> {
        let (id, bytes) = (delivery.id, memory_of(&delivery));
        self.use_up(id);
        let log = self.logs.entry(endpoint.clone()).or_default();
        log.all.insert(id);
        let mut dropped = Vec::new();
        let stage = match delivery.state {
            DeliveryState::Pending { .. } => {
                log.pending_url_bytes += delivery.url.len();
                self.arrived.push_back(id);
                self.pending.add(&owner, bytes);
                Stage::Arrived
            }
            DeliveryState::Delivered { .. } | DeliveryState::GivenUp { .. } => {
                let excess = log.ended.len().saturating_sub(DELIVERY_LOG_MAX - 1);
                dropped.extend(log.ended.iter().take(excess));
                log.ended.insert(id);
                dropped.extend(self.ended.add(owner, id, bytes));
                Stage::Ended
            }
        };
        let target = delivery.target().into();
        let row =
            DeliveryRow { endpoint, owner, delivery, target, stage, body: None, charge: None };
        self.rows.insert(id, row);
        dropped.retain(|id| self.drop_ended(*id));
        dropped
    }

    /// Drops an ended delivery from the log of its endpoint. Returns whether it was there.
    fn drop_ended(&mut self, id: DeliveryId) -> bool {
        let Some(row) = self.rows.remove(&id) else { return false };
        self.ended.remove(row.owner, id, memory_of(&row.delivery));
        if let Some(log) = self.logs.get_mut(&row.endpoint) {
            log.all.remove(&id);
            log.ended.remove(&id);
        }
        true
    }

    /// Records the location of the delivery's body; `None`: in the database.
    pub(crate) fn set_body(&mut self, id: DeliveryId, location: Option<PayloadLocation>) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.body = location;
        }
    }

    /// Keeps the charge for the delivery's body until the delivery ends.
    pub(crate) fn set_charge(&mut self, id: DeliveryId, charge: Option<DiskCharge>) {
        if let Some(row) = self.rows.get_mut(&id)
            && matches!(row.delivery.state, DeliveryState::Pending { .. })
        {
            row.charge = charge;
        }
    }

    /// The location of a pending delivery's body; the inner `None`: in the database.
    pub(crate) fn body(&self, id: DeliveryId) -> Option<Option<PayloadLocation>> {
        let row = self.rows.get(&id)?;
        matches!(row.delivery.state, DeliveryState::Pending { .. }).then_some(row.body)
    }

    /// The endpoint of a delivery.
    pub(crate) fn endpoint_of(&self, id: DeliveryId) -> Option<K> {
        self.rows.get(&id).map(|row| row.endpoint.clone())
    }

    /// Replaces the pending delivery with the same number, if there is one. Returns the old
    /// deliveries that the endpoint's log drops.
    pub(crate) fn replace(&mut self, delivery: Delivery) -> Vec<DeliveryId> {
        let Some(row) = self.rows.remove(&delivery.id) else { return Vec::new() };
        self.unschedule(&row);
        self.discount(&row);
        let was_pending = matches!(row.delivery.state, DeliveryState::Pending { .. });
        if was_pending && let Some(log) = self.logs.get_mut(&row.endpoint) {
            log.pending_url_bytes = log.pending_url_bytes.saturating_sub(row.delivery.url.len());
        }
        let DeliveryRow { endpoint, owner, body, charge, .. } = row;
        let id = delivery.id;
        let dropped = self.add(endpoint, owner, delivery);
        self.set_body(id, body);
        self.set_charge(id, charge);
        dropped
    }

    /// Removes all deliveries of an endpoint, and returns their numbers.
    pub(crate) fn forget(&mut self, endpoint: &K) -> Vec<DeliveryId> {
        let log = self.logs.remove(endpoint).unwrap_or_default();
        for id in &log.all {
            if let Some(row) = self.rows.remove(id) {
                self.unschedule(&row);
                self.discount(&row);
            }
        }
        log.all.into_iter().collect()
    }

    /// The memory of a removed row is free.
    fn discount(&mut self, row: &DeliveryRow<K>) {
        let bytes = memory_of(&row.delivery);
        match row.stage {
            Stage::Ended => self.ended.remove(row.owner, row.delivery.id, bytes),
            Stage::Arrived | Stage::PutBack | Stage::Asleep(_) | Stage::Ready | Stage::UnderWay => {
                self.pending.remove(&row.owner, bytes)
            }
        }
    }

    /// Removes a waiting row from the schedule. An attempt that is under way keeps its share until
    /// it ends.
    fn unschedule(&mut self, row: &DeliveryRow<K>) {
        match row.stage {
            Stage::Asleep(until) => {
                self.asleep.remove(&(until, row.delivery.id));
            }
            Stage::Ready => {
                if let Some(path) = self.path(row) {
                    self.schedule.remove(&path, row.delivery.id);
                    self.forget_owner_if_idle(&path);
                }
            }
            // `begin` passes over arrivals without a row.
            Stage::Arrived | Stage::PutBack | Stage::UnderWay | Stage::Ended => {}
        }
    }

    /// The position of a row in the schedule.
    fn path(&self, row: &DeliveryRow<K>) -> Option<Path<K>> {
        let owner = self.owners.get(&row.endpoint)?.clone();
        Some(Path { owner, endpoint: row.endpoint.clone(), target: row.target.clone() })
    }

    fn forget_owner_if_idle(&mut self, path: &Path<K>) {
        if !self.schedule.has(path.owner.as_ref(), &path.endpoint) {
            self.owners.remove(&path.endpoint);
        }
    }

    /// Starts the attempts that are next, after those in `ended` have ended; see
    /// [`begin_attempts`](gristmill_core::webhook::delivery::DeliveryStore::begin_attempts).
    pub(crate) fn begin(
        &mut self,
        ended: &[DeliveryId],
        owner_of: OwnerOf<'_>,
        now: Moment,
    ) -> DueDeliveries {
        for id in ended {
            self.end(*id);
        }
        self.accept_arrivals(owner_of, now);
        let mut due = Vec::new();
        while let Some(id) = self.schedule.begin() {
            let Some(row) = self.rows.get_mut(&id) else { continue };
            row.stage = Stage::UnderWay;
            due.push(row.delivery.clone());
            if let Some(path) = self.rows.get(&id).and_then(|row| self.path(row)) {
                self.in_flight.insert(id, path);
            }
        }
        let wakes_at = self.asleep.first().map(|(until, _)| *until);
        let next_at = if self.arrived.is_empty() { wakes_at } else { Some(now.elapsed) };
        DueDeliveries { due, next_at }
    }

    /// Returns the share of an ended attempt. An attempt without a recorded outcome counts as not
    /// made.
    fn end(&mut self, id: DeliveryId) {
        let Some(path) = self.in_flight.remove(&id) else { return };
        let was_received = match self.rows.get_mut(&id) {
            Some(row) if row.stage == Stage::UnderWay => {
                row.stage = Stage::PutBack;
                self.arrived.push_back(id);
                None
            }
            Some(row) => Some(matches!(row.delivery.state, DeliveryState::Delivered { .. })),
            None => None,
        };
        self.schedule.end(&path, was_received);
        self.forget_owner_if_idle(&path);
    }

    /// Adds to the schedule the deliveries that have arrived, and those whose wait is over, up to a
    /// bound.
    fn accept_arrivals(&mut self, owner_of: OwnerOf<'_>, now: Moment) {
        for _ in 0..ARRIVALS_MAX {
            if let Some((until, id)) = self.asleep.first().copied()
                && until <= now.elapsed
            {
                self.asleep.remove(&(until, id));
                self.make_ready(id, owner_of);
            } else if let Some(id) = self.arrived.pop_front() {
                self.arrive(id, owner_of, now);
            } else {
                return;
            }
        }
    }

    fn arrive(&mut self, id: DeliveryId, owner_of: OwnerOf<'_>, now: Moment) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        let wait_ms = match (row.stage, row.delivery.state) {
            (Stage::PutBack, _) => RETRY_INTERVAL_MS,
            (Stage::Arrived, _) if row.delivery.attempts == 0 => 0,
            (Stage::Arrived, DeliveryState::Pending { due_at }) => {
                due_at.millis_since(now.wall).min(RETRY_INTERVAL_MS)
            }
            _ => return, // it arrived twice, and was taken in the first time
        };
        if wait_ms == 0 {
            self.make_ready(id, owner_of);
        } else {
            let until = now.elapsed + Duration::from_millis(wait_ms);
            row.stage = Stage::Asleep(until);
            self.asleep.insert((until, id));
        }
    }

    fn make_ready(&mut self, id: DeliveryId, owner_of: OwnerOf<'_>) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        row.stage = Stage::Ready;
        let has_failed = row.delivery.attempts > 0;
        if !self.owners.contains_key(&row.endpoint) {
            let owner = owner_of(&row.delivery.endpoint);
            self.owners.insert(row.endpoint.clone(), owner);
        }
        if let Some(path) = self.rows.get(&id).and_then(|row| self.path(row)) {
            self.schedule.add(&path, id, has_failed);
        }
    }

    /// The newest deliveries of an endpoint.
    pub(crate) fn list(&self, endpoint: &K, count_max: usize) -> Vec<Delivery> {
        self.newest(endpoint, count_max).cloned().collect()
    }

    /// The deliveries of a job among the newest of its endpoint, oldest first. Costs up to 100 us.
    pub(crate) fn of_job(&self, endpoint: &K, job: JobId) -> Vec<Delivery> {
        let newest = self.newest(endpoint, DELIVERY_LOG_MAX);
        let mut found: Vec<_> = newest.filter(|found| found.job == job).cloned().collect();
        found.reverse();
        found
    }

    /// The newest deliveries of an endpoint, newest first.
    fn newest(&self, endpoint: &K, count_max: usize) -> impl Iterator<Item = &Delivery> {
        let all = self.logs.get(endpoint).into_iter().flat_map(|log| log.all.iter().rev());
        all.take(count_max).filter_map(|id| self.get(*id))
    }
}

#[cfg(test)]
mod tests;
