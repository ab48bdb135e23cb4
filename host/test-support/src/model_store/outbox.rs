//! The webhooks of a [`ModelStore`](super::ModelStore): one list, which each call examines as a
//! whole.
//!
//! An attempt belongs to the owner, then to the endpoint, then to the receiver with the fewest
//! attempts under way; among equals to the one whose last turn is the longest ago.

use std::collections::BTreeMap;
use std::time::Duration;

use gristmill_core::id::{EndpointId, JobId, OwnerId};
use gristmill_core::job::payload::Json;
use gristmill_core::sharing::shares::{Fit, SharedBound};
use gristmill_core::time::{Clock, Timestamp};
use gristmill_core::webhook::delivery::{
    ATTEMPTS_MAX, ATTEMPTS_PER_ENDPOINT_MAX, ATTEMPTS_PER_TARGET_MAX, DELIVERIES_PENDING_MAX,
    DELIVERIES_PENDING_URL_BYTES_MAX, DELIVERY_LOG_MAX, Delivery, DeliveryId, DeliveryState,
    DueDeliveries, NotSent, OwnerOf, RETRY_INTERVAL_MS,
};

#[derive(Debug, Default)]
pub(super) struct Outbox {
    rows: BTreeMap<DeliveryId, Row>,
    /// The attempts that have begun, and whose end was not reported.
    under_way: BTreeMap<DeliveryId, Group>,
    /// The numbers of the last turns of owners, endpoints and receivers.
    turns: BTreeMap<Part, u64>,
    /// Whether the last attempt to a receiver failed.
    failing: BTreeMap<Part, bool>,
    turn: u64,
    last_id: u64,
}

#[derive(Debug)]
struct Row {
    delivery: Delivery,
    /// The bytes to send, until the delivery ends.
    body: Option<Json>,
    stage: Stage,
}

/// The stage of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No call of [`Outbox::begin`] has seen it in this life of the store.
    Arrived,
    /// It is due at this time, by [`Clock::elapsed`].
    Waiting(Duration),
    UnderWay,
    Ended,
}

/// Whose attempt it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    owner: Option<OwnerId>,
    endpoint: EndpointId,
    target: String,
}

/// An owner, an endpoint or a receiver.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Owner(Option<OwnerId>),
    Endpoint(EndpointId),
    Target(EndpointId, String),
}

impl Group {
    fn parts(&self) -> [Part; 3] {
        [
            Part::Owner(self.owner.clone()),
            Part::Endpoint(self.endpoint.clone()),
            Part::Target(self.endpoint.clone(), self.target.clone()),
        ]
    }
}

impl Outbox {
    /// Adds the delivery that `make` returns for a new number. Its body counts until it ends.
    pub(super) fn add(&mut self, body: Json, make: impl FnOnce(DeliveryId) -> Delivery) {
        self.last_id += 1;
        let (delivery, body) = match make(DeliveryId(self.last_id)) {
            delivery if self.is_full(&delivery.endpoint) => {
                (delivery.refused(NotSent::OutboxFull), None)
            }
            delivery => (delivery, Some(body)),
        };
        let stage = if body.is_some() { Stage::Arrived } else { Stage::Ended };
        let endpoint = delivery.endpoint.clone();
        self.rows.insert(delivery.id, Row { delivery, body, stage });
        self.drop_oldest(&endpoint);
    }

    fn is_full(&self, endpoint: &EndpointId) -> bool {
        let pending = self
            .rows
            .values()
            .filter(|row| row.delivery.endpoint == *endpoint && row.stage != Stage::Ended);
        let (count, bytes) =
            pending.fold((0, 0), |(count, bytes), row| (count + 1, bytes + row.delivery.url.len()));
        count >= DELIVERIES_PENDING_MAX || bytes >= DELIVERIES_PENDING_URL_BYTES_MAX
    }

    /// Drops the oldest ended deliveries of an endpoint that has too many.
    fn drop_oldest(&mut self, endpoint: &EndpointId) {
        let ended = self
            .rows
            .iter()
            .filter(|(_, row)| row.delivery.endpoint == *endpoint && row.stage == Stage::Ended);
        let ended: Vec<_> = ended.map(|(id, _)| *id).collect();
        for id in ended.iter().take(ended.len().saturating_sub(DELIVERY_LOG_MAX)) {
            self.rows.remove(id);
        }
    }

    /// The deliveries that are still to be made.
    pub(super) fn waiting(&self) -> u64 {
        self.rows.values().filter(|row| row.stage != Stage::Ended).count() as u64
    }

    pub(super) fn get(&self, id: DeliveryId) -> Option<&Delivery> {
        self.rows.get(&id).map(|row| &row.delivery)
    }

    pub(super) fn body(&self, id: DeliveryId) -> Option<Json> {
        self.rows.get(&id)?.body.clone()
    }

    /// Replaces a delivery after an attempt.
    pub(super) fn replace(&mut self, delivery: Delivery) {
        let Some(row) = self.rows.get_mut(&delivery.id) else { return };
        let endpoint = delivery.endpoint.clone();
        let is_pending = matches!(delivery.state, DeliveryState::Pending { .. });
        row.stage = if is_pending { Stage::Arrived } else { Stage::Ended };
        row.body = row.body.take().filter(|_| is_pending);
        row.delivery = delivery;
        self.drop_oldest(&endpoint);
    }

    pub(super) fn forget(&mut self, endpoint: &EndpointId) {
        self.rows.retain(|_, row| row.delivery.endpoint != *endpoint);
    }

    /// Ends all attempts, as a start of the host does.
    pub(super) fn restart(&mut self) {
        self.under_way.clear();
        self.turns.clear();
        self.failing.clear();
        for row in self.rows.values_mut().filter(|row| row.stage != Stage::Ended) {
            row.stage = Stage::Arrived;
        }
    }

    /// Starts the attempts that are next, after those in `ended` have ended.
    pub(super) fn begin(
        &mut self,
        ended: &[DeliveryId],
        owner_of: OwnerOf<'_>,
        clock: &dyn Clock,
    ) -> DueDeliveries {
        let now = clock.elapsed();
        for id in ended {
            self.end(*id, now);
        }
        for row in self.rows.values_mut().filter(|row| row.stage == Stage::Arrived) {
            row.stage = Stage::Waiting(now + wait(&row.delivery, clock.now()));
        }
        let mut due = vec![];
        while let Some((id, group)) = self.next(owner_of, now) {
            self.turn += 1;
            self.turns.extend(group.parts().map(|part| (part, self.turn)));
            self.under_way.insert(id, group);
            if let Some(row) = self.rows.get_mut(&id) {
                row.stage = Stage::UnderWay;
                due.push(row.delivery.clone());
            }
        }
        let later = self.rows.values().filter_map(|row| match row.stage {
            Stage::Waiting(until) if until > now => Some(until),
            Stage::Arrived | Stage::Waiting(_) | Stage::UnderWay | Stage::Ended => None,
        });
        DueDeliveries { due, next_at: later.min() }
    }

    /// An attempt without a recorded outcome counts as not made.
    fn end(&mut self, id: DeliveryId, now: Duration) {
        let Some(group) = self.under_way.remove(&id) else { return };
        let [.., target] = group.parts();
        match self.rows.get_mut(&id) {
            Some(row) if row.stage == Stage::UnderWay => {
                row.stage = Stage::Waiting(now + Duration::from_millis(RETRY_INTERVAL_MS));
            }
            Some(row) => {
                let was_received = matches!(row.delivery.state, DeliveryState::Delivered { .. });
                self.failing.insert(target, !was_received);
            }
            None => {}
        }
    }

    /// The delivery of the next attempt, if there is one within all bounds.
    fn next(&self, owner_of: OwnerOf<'_>, now: Duration) -> Option<(DeliveryId, Group)> {
        let (bound, all) = (SharedBound::always(ATTEMPTS_MAX as u64), self.under_way.len());
        let ready = self
            .rows
            .iter()
            .filter(|(_, row)| matches!(row.stage, Stage::Waiting(until) if until <= now));
        let candidates = ready.filter_map(|(id, row)| {
            let group = Group {
                owner: owner_of(&row.delivery.endpoint),
                endpoint: row.delivery.endpoint.clone(),
                target: row.delivery.target(),
            };
            let count = |is_of: &dyn Fn(&Group) -> bool| {
                self.under_way.values().filter(|other| is_of(other)).count()
            };
            let of_owner = count(&|other| other.owner == group.owner);
            let of_endpoint = count(&|other| other.endpoint == group.endpoint);
            let of_target = count(&|other| *other == group);
            let is_admitted = bound.fit(of_owner as u64, all as u64, 1) == Fit::Fits
                && of_endpoint < ATTEMPTS_PER_ENDPOINT_MAX
                && of_target < ATTEMPTS_PER_TARGET_MAX;
            let [owner, endpoint, target] = group.parts();
            let turn = |part: &Part| self.turns.get(part).copied().unwrap_or(0);
            let is_failing =
                self.failing.get(&target).copied().unwrap_or(row.delivery.attempts > 0);
            let rank = [
                (false, of_owner, turn(&owner)),
                (false, of_endpoint, turn(&endpoint)),
                (is_failing, of_target, turn(&target)),
            ];
            is_admitted.then_some((rank, *id, group))
        });
        let first = candidates.min_by(|(a, id, _), (b, other, _)| (a, id).cmp(&(b, other)));
        first.map(|(_, id, group)| (id, group))
    }

    /// The newest deliveries of an endpoint, newest first.
    pub(super) fn list(&self, endpoint: &EndpointId, count_max: usize) -> Vec<Delivery> {
        let all = self.rows.values().rev().map(|row| &row.delivery);
        all.filter(|found| found.endpoint == *endpoint).take(count_max).cloned().collect()
    }

    /// The deliveries of a job among the newest of its endpoint, oldest first.
    pub(super) fn of_job(&self, endpoint: &EndpointId, job: JobId) -> Vec<Delivery> {
        let newest = self.list(endpoint, DELIVERY_LOG_MAX);
        newest.into_iter().filter(|found| found.job == job).rev().collect()
    }
}

/// The time until the next attempt of a delivery that no call has seen.
fn wait(delivery: &Delivery, now: Timestamp) -> Duration {
    let wait_ms = match delivery.state {
        DeliveryState::Pending { due_at } if delivery.attempts > 0 => {
            due_at.millis_since(now).min(RETRY_INTERVAL_MS)
        }
        _ => 0,
    };
    Duration::from_millis(wait_ms)
}
