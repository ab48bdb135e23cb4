//! Attempts of several owners in one line.

use std::time::Duration;

use gristmill_core::id::TemplateId;
use gristmill_core::time::Timestamp;

use super::*;

pub(crate) fn endpoint(owner: &str, id: &str) -> Arc<Endpoint> {
    let (owner, template) = (OwnerId::new(owner).unwrap(), TemplateId::new("t").unwrap());
    let (id, now) = (EndpointId::new(id).unwrap(), Timestamp::from_millis(0));
    Arc::new(Endpoint::new(id, owner, template, now))
}

/// A line in which attempts have numbers, and deadlines in so many seconds.
#[derive(Default)]
struct TestLine(Line<u32>);

impl TestLine {
    fn push(&mut self, owner: &str, id: &str, attempts: impl IntoIterator<Item = u32>) {
        self.push_until(owner, id, 3_600, attempts);
    }

    fn push_until(
        &mut self,
        owner: &str,
        id: &str,
        secs: u64,
        attempts: impl IntoIterator<Item = u32>,
    ) {
        let (endpoint, now) = (endpoint(owner, id), Instant::now());
        for attempt in attempts {
            self.0.push(endpoint.clone(), now + Duration::from_secs(secs), attempt);
        }
    }

    fn pop(&mut self, count: usize) -> Vec<u32> {
        (0..count).map_while(|_| self.0.pop()).collect()
    }
}

#[test]
fn the_attempts_of_an_endpoint_come_in_their_order() {
    let mut line = TestLine::default();
    line.push("o", "e", 0..100);
    assert_eq!(line.pop(200), (0..100).collect::<Vec<_>>());
    assert_eq!(line.0.pop(), None);
}

#[test]
fn an_owner_waits_for_one_turn_of_each_other_owner() {
    let mut line = TestLine::default();
    line.push("busy", "b", 0..1_000);
    line.push("other", "o", 2_000..3_000);
    assert_eq!(line.pop(4), [0, 1, 2_000, 2]);
    line.push("innocent", "i", [9_000, 9_001]);
    let next = line.pop(6);
    assert_eq!(next.iter().filter(|attempt| **attempt >= 9_000).count(), 2, "{next:?}");
    assert_eq!(line.pop(4_000).len(), 2_002 - 10);
}

#[test]
fn the_endpoints_of_an_owner_take_turns_too() {
    let mut line = TestLine::default();
    line.push("one", "batch", 0..1_000);
    line.push("one", "quick", [9_000, 9_001]);
    assert_eq!(line.pop(6), [0, 1, 9_000, 2, 9_001, 3]);
}

#[test]
fn an_attempt_whose_deadline_has_passed_is_next() {
    let mut line = TestLine::default();
    line.push("busy", "b", 0..1_000);
    line.push_until("busy", "b", 0, [5_000]);
    line.push("other", "o", [6_000]);
    line.push_until("other", "o", 0, [6_001]);
    assert_eq!(line.pop(3), [0, 5_000, 6_001]);
    let rest = line.pop(2_000);
    assert_eq!((rest.len(), rest.contains(&6_000)), (1_000, true));
    assert_eq!(line.0.pop(), None);
}
