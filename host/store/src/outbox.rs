//! Webhooks on their way, in memory: which are due, by whom they are held up, and the log of each
//! endpoint. Holds what is on disk, without the bodies: some 300 bytes for each delivery.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gristmill_core::delivery::{
    DELIVERIES_PENDING_MAX, DELIVERY_LOG_MAX, Delivery, DeliveryId, DeliveryState, DueDeliveries,
};
use gristmill_core::time::Timestamp;

use crate::journal::segment::Place;

/// The deliveries of all endpoints; `K` is what tells endpoints apart.
#[derive(Debug)]
pub(crate) struct Outbox<K> {
    rows: BTreeMap<DeliveryId, Row<K>>,
    /// Those that are pending, by target.
    pending: BTreeMap<String, BTreeSet<(Timestamp, DeliveryId)>>,
    logs: BTreeMap<K, Log>,
    last_id: u64,
    /// For each endpoint.
    pub(crate) pending_max: usize,
}

#[derive(Debug)]
struct Row<K> {
    endpoint: K,
    delivery: Delivery,
    /// Where the body is, while it is in the journal.
    body: Option<Place>,
}

/// The deliveries of one endpoint.
#[derive(Debug, Default)]
struct Log {
    all: BTreeSet<DeliveryId>,
    /// Those that have ended, in that order.
    ended: VecDeque<DeliveryId>,
}

impl<K> Default for Outbox<K> {
    fn default() -> Self {
        let (rows, pending, logs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { rows, pending, logs, last_id: 0, pending_max: DELIVERIES_PENDING_MAX }
    }
}

impl<K: Ord + Clone> Outbox<K> {
    /// A number that no delivery has had.
    pub(crate) fn next_id(&mut self) -> DeliveryId {
        self.last_id += 1;
        DeliveryId(self.last_id)
    }

    /// Whether no more deliveries of the endpoint may be on their way.
    pub(crate) fn is_full(&self, endpoint: &K) -> bool {
        let pending = |log: &Log| log.all.len() - log.ended.len();
        self.logs.get(endpoint).is_some_and(|log| pending(log) >= self.pending_max)
    }

    pub(crate) fn get(&self, id: DeliveryId) -> Option<&Delivery> {
        self.rows.get(&id).map(|row| &row.delivery)
    }

    /// Takes in a delivery. Returns the ones that fall out of the endpoint's log.
    pub(crate) fn add(&mut self, endpoint: K, delivery: Delivery) -> Vec<DeliveryId> {
        let id = delivery.id;
        self.last_id = self.last_id.max(id.0);
        let log = self.logs.entry(endpoint.clone()).or_default();
        log.all.insert(id);
        let mut dropped = Vec::new();
        match delivery.state {
            DeliveryState::Pending { due_at } => {
                self.pending.entry(delivery.target()).or_default().insert((due_at, id));
            }
            DeliveryState::Delivered { .. } | DeliveryState::GivenUp { .. } => {
                log.ended.push_back(id);
                while log.ended.len() > DELIVERY_LOG_MAX {
                    dropped.extend(log.ended.pop_front());
                }
            }
        }
        for id in &dropped {
            log.all.remove(id);
            self.rows.remove(id);
        }
        self.rows.insert(id, Row { endpoint, delivery, body: None });
        dropped
    }

    /// Notes where the delivery's body is; `None`: in the database.
    pub(crate) fn set_body(&mut self, id: DeliveryId, place: Option<Place>) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.body = place;
        }
    }

    /// Where the body of a delivery is that is on its way; the inner `None`: in the database.
    pub(crate) fn body(&self, id: DeliveryId) -> Option<Option<Place>> {
        let row = self.rows.get(&id)?;
        matches!(row.delivery.state, DeliveryState::Pending { .. }).then_some(row.body)
    }

    /// Whose delivery it is.
    pub(crate) fn endpoint_of(&self, id: DeliveryId) -> Option<K> {
        self.rows.get(&id).map(|row| row.endpoint.clone())
    }

    /// Puts the delivery in the place of the pending one with its number, if there is one. Returns
    /// the ones that fall out of the endpoint's log.
    pub(crate) fn replace(&mut self, delivery: Delivery) -> Vec<DeliveryId> {
        let Some(row) = self.rows.remove(&delivery.id) else { return Vec::new() };
        self.unschedule(&row.delivery);
        let (id, body) = (delivery.id, row.body);
        let dropped = self.add(row.endpoint, delivery);
        self.set_body(id, body);
        dropped
    }

    /// Forgets what belongs to an endpoint. Returns what there was.
    pub(crate) fn forget(&mut self, endpoint: &K) -> Vec<DeliveryId> {
        let log = self.logs.remove(endpoint).unwrap_or_default();
        for id in &log.all {
            if let Some(row) = self.rows.remove(id) {
                self.unschedule(&row.delivery);
            }
        }
        log.all.into_iter().collect()
    }

    fn unschedule(&mut self, delivery: &Delivery) {
        let DeliveryState::Pending { due_at } = delivery.state else { return };
        let target = delivery.target();
        if let Some(pending) = self.pending.get_mut(&target) {
            pending.remove(&(due_at, delivery.id));
            if pending.is_empty() {
                self.pending.remove(&target);
            }
        }
    }

    /// What is due at `now`. Cost: a look at each target that something is on its way to.
    pub(crate) fn due(&self, now: Timestamp, per_target: usize, count_max: usize) -> DueDeliveries {
        let mut due = Vec::new();
        let mut next = Timestamp::NEVER;
        let later = (now.plus_millis(1), DeliveryId(0));
        for pending in self.pending.values() {
            due.extend(pending.range(..later).take(per_target));
            if let Some((at, _)) = pending.range(later..).next() {
                next = next.min(*at);
            }
        }
        due.sort_unstable();
        due.truncate(count_max);
        let due = due.iter().filter_map(|(_, id)| self.get(*id).cloned()).collect();
        DueDeliveries { due, next }
    }

    /// The newest deliveries of an endpoint.
    pub(crate) fn list(&self, endpoint: &K, count_max: usize) -> Vec<Delivery> {
        let Some(log) = self.logs.get(endpoint) else { return Vec::new() };
        log.all.iter().rev().take(count_max).filter_map(|id| self.get(*id).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::delivery::{AfterAttempt, AttemptReport};
    use gristmill_core::id::{EndpointId, JobId, NodeId, Submission};
    use gristmill_core::job::JobStatus;

    use super::*;

    fn delivery(outbox: &mut Outbox<u8>, url: &str, due_at: u64) -> Delivery {
        let due_at = Timestamp::from_millis(due_at);
        Delivery {
            id: outbox.next_id(),
            endpoint: EndpointId::new("e").unwrap(),
            job: JobId::generate(Submission::Async, NodeId(0)),
            job_status: JobStatus::Completed,
            job_retries: 0,
            url: url.to_owned(),
            body_bytes: 2,
            created_at: due_at,
            state: DeliveryState::Pending { due_at },
            attempts: 0,
            last: AttemptReport::default(),
        }
    }

    fn add(outbox: &mut Outbox<u8>, endpoint: u8, url: &str, due_at: u64) -> DeliveryId {
        let delivery = delivery(outbox, url, due_at);
        let id = delivery.id;
        assert!(outbox.add(endpoint, delivery).is_empty());
        id
    }

    fn due(outbox: &Outbox<u8>, now: u64) -> (Vec<u64>, Timestamp) {
        let DueDeliveries { due, next } = outbox.due(Timestamp::from_millis(now), 2, 3);
        (due.iter().map(|delivery| delivery.id.0).collect(), next)
    }

    #[test]
    fn a_target_with_many_deliveries_does_not_hide_the_others() {
        let mut outbox = Outbox::default();
        for _ in 0..4 {
            add(&mut outbox, 1, "http://a/x", 10);
        }
        add(&mut outbox, 1, "http://b/", 11);
        add(&mut outbox, 1, "http://c/", 50);
        assert_eq!(due(&outbox, 9), (vec![], Timestamp::from_millis(10)));
        assert_eq!(due(&outbox, 20), (vec![1, 2, 5], Timestamp::from_millis(50)));
        assert_eq!(due(&outbox, 50), (vec![1, 2, 5], Timestamp::NEVER), "three in all");
        outbox.forget(&1);
        assert_eq!(due(&outbox, 50), (vec![], Timestamp::NEVER));
        assert!(outbox.rows.is_empty() && outbox.pending.is_empty() && outbox.logs.is_empty());
    }

    #[test]
    fn the_log_keeps_the_newest_that_have_ended_and_all_that_have_not() {
        let mut outbox = Outbox::default();
        let waiting = add(&mut outbox, 1, "http://a/", 10);
        let now = Timestamp::from_millis(10);
        for i in 0..DELIVERY_LOG_MAX + 2 {
            let id = add(&mut outbox, 1, "http://b/", 10);
            let report = AttemptReport { status: Some(200), error: None };
            let ended = outbox.get(id).unwrap().after(report, AfterAttempt::Delivered, now);
            assert_eq!(outbox.replace(ended).len(), usize::from(i >= DELIVERY_LOG_MAX));
        }
        let log = outbox.list(&1, usize::MAX);
        assert_eq!(log.len(), DELIVERY_LOG_MAX + 1);
        assert_eq!(log.last().unwrap().id, waiting);
        assert_eq!(due(&outbox, 10), (vec![waiting.0], Timestamp::NEVER));
    }

    #[test]
    fn an_endpoint_is_full_while_too_many_are_on_their_way() {
        let mut outbox = Outbox { pending_max: 2, ..Outbox::default() };
        add(&mut outbox, 1, "http://a/", 10);
        let refused = delivery(&mut outbox, "http://a/", 10).refused();
        outbox.add(1, refused);
        assert!(!outbox.is_full(&1), "one is on its way");
        let id = add(&mut outbox, 1, "http://a/", 10);
        assert!(outbox.is_full(&1) && !outbox.is_full(&2));
        let now = Timestamp::from_millis(10);
        let ended =
            outbox.get(id).unwrap().after(AttemptReport::default(), AfterAttempt::GiveUp, now);
        outbox.replace(ended);
        assert!(!outbox.is_full(&1));
    }
}
