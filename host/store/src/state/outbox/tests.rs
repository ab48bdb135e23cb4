//! The outbox by cases; `schedule/tests.rs` has the order of attempts by properties.

use gristmill_core::id::{EndpointId, JobId, ShardId, SubmissionKind};
use gristmill_core::job::state::JobStatus;
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::webhook::delivery::{
    ATTEMPTS_PER_ENDPOINT_MAX, ATTEMPTS_PER_TARGET_MAX, AfterAttempt, DeliveryOutcome, NotSent,
};

use super::*;

const AGAIN: AfterAttempt = AfterAttempt::TryAgain { after_ms: RETRY_INTERVAL_MS };

/// An outbox with a clock by both measures, and the attempts that are under way.
#[derive(Default)]
struct Fixture {
    outbox: Outbox<u8>,
    wall_ms: u64,
    elapsed_ms: u64,
    ended: Vec<DeliveryId>,
}

impl Fixture {
    fn new() -> Self {
        Self { wall_ms: 1_000_000, ..Self::default() }
    }

    fn now(&self) -> Moment {
        Moment {
            wall: Timestamp::from_millis(self.wall_ms),
            elapsed: Duration::from_millis(self.elapsed_ms),
        }
    }

    fn delivery(&mut self, url: &str) -> Delivery {
        let created_at = self.now().wall;
        Delivery {
            id: self.outbox.next_id(),
            endpoint: EndpointId::new("e").unwrap(),
            job: JobId::generate(SubmissionKind::Async, ShardId(0)),
            job_status: JobStatus::Completed,
            job_retries: 0,
            url: url.to_owned(),
            body_bytes: 2,
            created_at,
            state: DeliveryState::Pending { due_at: created_at },
            attempts: 0,
            made: Vec::new(),
            trace: None,
            last: DeliveryOutcome::default(),
        }
    }

    fn add(&mut self, endpoint: u8, url: &str) -> DeliveryId {
        let delivery = self.delivery(url);
        let id = delivery.id;
        assert!(self.outbox.add(endpoint, OwnerKey::default(), delivery).is_empty());
        id
    }

    /// The attempts that start now, and the milliseconds until the next call.
    fn begin(&mut self) -> (Vec<DeliveryId>, Option<u64>) {
        let ended = std::mem::take(&mut self.ended);
        let now = self.now();
        let DueDeliveries { due, next_at } = self.outbox.begin(&ended, &|_| None, now);
        let in_ms =
            |at: Duration| u64::try_from(at.saturating_sub(now.elapsed).as_millis()).unwrap();
        let next_ms = next_at.map(in_ms);
        (due.iter().map(|delivery| delivery.id).collect(), next_ms)
    }

    /// The attempt has been made.
    fn record(&mut self, id: DeliveryId, next: AfterAttempt) -> Vec<DeliveryId> {
        let now = self.now().wall;
        let after = self.outbox.get(id).unwrap().after(DeliveryOutcome::default(), next, now);
        self.ended.push(id);
        self.outbox.replace(after)
    }

    fn pass(&mut self, ms: u64) {
        self.elapsed_ms += ms;
        self.wall_ms += ms;
    }

    fn is_empty(&self) -> bool {
        let Outbox { rows, arrived, asleep, schedule, owners, in_flight, .. } = &self.outbox;
        rows.is_empty()
            && arrived.is_empty()
            && asleep.is_empty()
            && schedule.is_empty()
            && owners.is_empty()
            && in_flight.is_empty()
    }
}

#[test]
fn a_target_with_many_deliveries_does_not_hide_the_others() {
    let mut t = Fixture::new();
    let many: Vec<_> = (0..9).map(|_| t.add(1, "http://a/x")).collect();
    let one = t.add(1, "http://b/");
    let (begun, next_ms) = t.begin();
    assert_eq!(begun, [many[0], one, many[1], many[2], many[3]]);
    assert_eq!(next_ms, None, "the rest waits for the end of an attempt");
    assert_eq!(t.begin().0, [], "what is under way is not started again");
    t.record(many[2], AfterAttempt::Delivered);
    assert_eq!(t.begin().0, [many[4]]);
}

#[test]
fn an_endpoint_with_many_targets_does_not_use_all_attempts() {
    let mut t = Fixture::new();
    for n in 0..1_000 {
        t.add(1, &format!("http://dead-{n}/"));
    }
    assert_eq!(t.begin().0.len(), ATTEMPTS_PER_ENDPOINT_MAX);
    let other = t.add(2, "http://dead-0/");
    assert_eq!(t.begin().0, [other], "also to a receiver that the first endpoint calls");
}

#[test]
fn a_call_accepts_a_bounded_number_and_requests_another_call() {
    let mut t = Fixture::new();
    for n in 0..ARRIVALS_MAX {
        t.add(1, &format!("http://dead-{n}/"));
    }
    let other = t.add(2, "http://ok/");
    let (begun, next_ms) = t.begin();
    assert_eq!((begun.len(), next_ms), (ATTEMPTS_PER_ENDPOINT_MAX, Some(0)));
    assert_eq!(t.begin(), (vec![other], None));
}

#[test]
fn a_retry_waits_ten_seconds_whatever_the_wall_clock_does() {
    for jump_ms in [0_i64, 3_600_000, -900_000] {
        let mut t = Fixture::new();
        let id = t.add(1, "http://a/");
        assert_eq!(t.begin().0, [id]);
        t.record(id, AGAIN);
        assert_eq!(t.begin(), (vec![], Some(10_000)));
        t.wall_ms = t.wall_ms.checked_add_signed(jump_ms).unwrap();
        t.pass(9_999);
        assert_eq!(t.begin(), (vec![], Some(1)), "{jump_ms}");
        t.pass(1);
        assert_eq!(t.begin().0, [id], "{jump_ms}");
    }
}

#[test]
fn a_clock_that_was_set_back_before_a_start_delays_no_delivery_by_more_than_a_retry() {
    let mut t = Fixture::new();
    let later = Timestamp::from_millis(t.wall_ms + 86_400_000);
    let mut deliveries = [t.delivery("http://a/"), t.delivery("http://b/")];
    for (attempts, delivery) in (0..).zip(&mut deliveries) {
        delivery.attempts = attempts;
        delivery.state = DeliveryState::Pending { due_at: later };
        t.outbox.add(1, OwnerKey::default(), delivery.clone());
    }
    assert_eq!(t.begin(), (vec![deliveries[0].id], Some(10_000)), "no attempt was made of it");
    t.pass(10_000);
    assert_eq!(t.begin(), (vec![deliveries[1].id], None));
}

#[test]
fn an_attempt_that_was_not_made_is_due_again_after_a_while() {
    let mut t = Fixture::new();
    let id = t.add(1, "http://a/");
    assert_eq!(t.begin().0, [id]);
    t.ended.push(id);
    assert_eq!(t.begin(), (vec![], Some(10_000)));
    t.pass(10_000);
    assert_eq!(t.begin().0, [id]);
    assert_eq!(t.outbox.get(id).unwrap().attempts, 0);
}

#[test]
fn attempts_of_a_deleted_endpoint_use_its_share_until_they_end() {
    let mut t = Fixture::new();
    for n in 0..ATTEMPTS_PER_ENDPOINT_MAX {
        t.add(1, &format!("http://dead-{n}/"));
    }
    let (begun, _) = t.begin();
    assert_eq!(t.outbox.forget(&1).len(), ATTEMPTS_PER_ENDPOINT_MAX);
    // The same endpoint once more, and others of the same owner.
    for endpoint in 1..=4 {
        for n in 0..ATTEMPTS_PER_ENDPOINT_MAX {
            t.add(endpoint, &format!("http://dead-{n}/"));
        }
    }
    assert_eq!(t.begin().0.len(), 48 - begun.len(), "the share of their owner");
    t.ended = begun;
    assert_eq!(t.begin().0.len(), 16);
}

#[test]
fn nothing_is_kept_of_an_endpoint_that_was_forgotten() {
    let mut t = Fixture::new();
    for _ in 0..2 * ATTEMPTS_PER_TARGET_MAX {
        t.add(1, "http://a/");
    }
    let (begun, _) = t.begin();
    t.record(begun[0], AGAIN);
    t.record(begun[1], AfterAttempt::Delivered);
    t.begin();
    t.outbox.forget(&1);
    t.ended = begun[2..].to_vec();
    t.ended.extend(t.outbox.in_flight.keys());
    t.add(1, "http://a/");
    t.outbox.forget(&1);
    assert_eq!(t.begin(), (vec![], None));
    assert!(t.is_empty(), "{:?}", t.outbox);
}

#[test]
fn the_log_keeps_the_newest_that_have_ended_and_all_that_have_not() {
    let mut t = Fixture::new();
    let waiting = t.add(1, "http://a/");
    for i in 0..DELIVERY_LOG_MAX + 2 {
        let id = t.add(1, "http://b/");
        let dropped = t.record(id, AfterAttempt::Delivered);
        assert_eq!(dropped.len(), usize::from(i >= DELIVERY_LOG_MAX));
    }
    let log = t.outbox.list(&1, usize::MAX);
    assert_eq!(log.len(), DELIVERY_LOG_MAX + 1);
    assert_eq!(log.last().unwrap().id, waiting);
    assert_eq!(t.begin().0, [waiting]);
}

#[test]
fn an_endpoint_is_full_while_too_many_deliveries_are_pending() {
    let mut t = Fixture::new();
    t.outbox.pending_max = 2;
    t.add(1, "http://a/");
    let refused = t.delivery("http://a/").refused(NotSent::OutboxFull);
    t.outbox.add(1, OwnerKey::default(), refused);
    assert!(!t.outbox.is_full(&1), "one is on its way");
    let id = t.add(1, "http://a/");
    assert!(t.outbox.is_full(&1) && !t.outbox.is_full(&2));
    t.record(id, AfterAttempt::GiveUp);
    assert!(!t.outbox.is_full(&1));
}

#[test]
fn a_body_is_charged_until_its_delivery_ends_or_its_endpoint_is_deleted() {
    let mut t = Fixture::new();
    let account = DiskAccount::default();
    let ids = [1, 1, 2].map(|endpoint| t.add(endpoint, "http://a/"));
    for id in ids {
        t.outbox.set_charge(id, Some(account.charge(10)));
    }
    t.begin();
    t.record(ids[0], AGAIN);
    assert_eq!(account.bytes(), 30, "the next attempt needs the body");
    t.record(ids[0], AfterAttempt::GiveUp);
    t.record(ids[1], AfterAttempt::Delivered);
    assert_eq!(account.bytes(), 10);
    t.outbox.forget(&2);
    assert_eq!(account.bytes(), 0);
    t.outbox.set_charge(ids[0], Some(account.charge(10)));
    assert_eq!(account.bytes(), 0, "it has ended");
}

#[test]
fn an_endpoint_is_full_while_the_urls_of_pending_deliveries_are_too_long() {
    let mut t = Fixture::new();
    let url = format!("http://a/{}", "x".repeat(1 << 20));
    let ids: Vec<_> = (0..32).map(|_| t.add(1, &url)).collect();
    assert!(t.outbox.is_full(&1));
    t.record(ids[0], AGAIN);
    assert!(t.outbox.is_full(&1));
    t.record(ids[0], AfterAttempt::GiveUp);
    assert!(!t.outbox.is_full(&1));
}
