//! Limits by tables, and by properties over random starts and ends.

use gristmill_core::id::OwnerId;
use gristmill_core::job::starts::KeyLimits;
use proptest::prelude::*;

use super::*;
use crate::state::owners::Owners;

const BEGIN: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn at(ms: u64) -> Timestamp {
    BEGIN.plus_millis(ms)
}

fn rate(jobs: u32, per_ms: u64, burst: u32) -> StartRate {
    StartRate { jobs: Some(jobs), per_ms, burst }
}

fn limited(limits: &StartLimits) -> Starts {
    let mut starts = Starts::new();
    // The store was opened long ago.
    starts.limit(StartRules::of(limits), std::iter::empty(), BEGIN, Timestamp::from_millis(0));
    while starts.fire(BEGIN, &mut Vec::new()).is_some() {}
    starts
}

fn of_keys(concurrency: Option<u32>, rate: Option<StartRate>) -> StartLimits {
    let keys = KeyLimits { concurrency, rate: rate.unwrap_or_default(), ..KeyLimits::default() };
    StartLimits { keys, ..StartLimits::default() }
}

fn flow(n: u32) -> Flow {
    Flow::of(&n.to_string())
}

#[test]
fn a_key_runs_as_many_jobs_as_its_limit() {
    let mut starts = limited(&of_keys(Some(2), None));
    for n in 0..2 {
        assert_eq!(starts.admission(flow(1), BEGIN).starts, 2 - n);
        starts.started(flow(1), BEGIN);
    }
    assert_eq!(starts.blocked(flow(1), BEGIN), Some(Blocked::Running(2)));
    assert_eq!(starts.blocked(flow(2), BEGIN), None);
    assert_eq!(starts.blocked(Flow::NONE, BEGIN), None);
    assert_eq!(starts.ended(flow(1), BEGIN), None);
    assert_eq!(starts.admission(flow(1), BEGIN).starts, 1);
    // A job that still runs since an earlier process counts.
    starts.restore(flow(1));
    assert_eq!(starts.blocked(flow(1), BEGIN), Some(Blocked::Running(2)));
    starts.ended(flow(1), BEGIN);
    starts.ended(flow(1), BEGIN);
    assert!(starts.flows.is_empty() && starts.times.is_empty());
}

#[test]
fn a_pace_permits_a_burst_and_then_one_start_each_interval() {
    let mut starts = limited(&of_keys(None, Some(rate(10, 1_000, 3))));
    for left in [2, 1, 0] {
        starts.started(flow(1), BEGIN);
        assert_eq!(starts.admission(flow(1), BEGIN).starts, left);
    }
    assert_eq!(starts.blocked(flow(1), BEGIN), Some(Blocked::KeyUntil(at(100))));
    assert_eq!(starts.next_time(), at(100));
    assert_eq!(starts.fire(at(99), &mut Vec::new()), None);
    assert_eq!(starts.fire(at(100), &mut Vec::new()), Some(flow(1)));
    assert_eq!(starts.admission(flow(1), at(100)).starts, 1);
    // Its jobs have ended, and it is remembered until its pace is as that of an unknown key.
    for _ in 0..3 {
        assert_eq!(starts.ended(flow(1), at(100)), None);
    }
    assert_eq!((starts.flows.len(), starts.next_time()), (1, at(300)));
    assert_eq!(starts.fire(at(300), &mut Vec::new()), Some(flow(1)));
    assert!(starts.flows.is_empty() && starts.times.is_empty());
}

#[test]
fn a_throttle_holds_for_all_keys_together() {
    let throttle = rate(1, 500, 2);
    let mut starts = limited(&StartLimits { throttle, ..StartLimits::default() });
    assert_eq!(starts.permitted(), 2);
    starts.started(Flow::NONE, BEGIN);
    starts.started(flow(1), BEGIN);
    assert_eq!(starts.permitted(), 0);
    assert_eq!(starts.blocked(flow(2), at(1)), Some(Blocked::EndpointUntil(at(500))));
    assert_eq!(starts.fire(at(500), &mut Vec::new()), Some(Flow::NONE));
    assert_eq!(starts.permitted(), 1);
}

#[test]
fn starts_before_the_store_was_opened_count_as_a_whole_burst() {
    let limits = StartLimits { throttle: rate(1, 100, 5), ..of_keys(None, Some(rate(1, 700, 2))) };
    let mut starts = Starts::new();
    starts.limit(StartRules::of(&limits), [flow(1)].into_iter(), BEGIN, BEGIN);
    assert_eq!((starts.permitted(), starts.admission(flow(1), BEGIN).starts), (0, 0));
    let mut fired = Vec::new();
    let mut now = BEGIN;
    while starts.next_time() <= at(1_400) {
        now = now.max(starts.next_time());
        while let Some(flow) = starts.fire(now, &mut Vec::new()) {
            fired.push((now.millis_since(BEGIN), flow));
        }
    }
    assert!(fired.contains(&(100, Flow::NONE)) && fired.contains(&(700, flow(1))), "{fired:?}");
    assert_eq!(starts.admission(flow(1), at(1_400)).starts, 2);
}

#[test]
fn a_changed_limit_holds_from_then_on() {
    let mut starts = limited(&of_keys(None, Some(rate(1, 3_600_000, 9))));
    for _ in 0..9 {
        starts.started(flow(1), BEGIN);
    }
    assert_eq!(starts.blocked(flow(1), BEGIN), Some(Blocked::KeyUntil(at(3_600_000))));
    let faster = StartRules::of(&of_keys(None, Some(rate(1, 1_000, 1))));
    assert!(starts.limit(faster.clone(), std::iter::empty(), at(10), Timestamp::from_millis(0)));
    assert!(!starts.limit(faster, std::iter::empty(), at(10), Timestamp::from_millis(0)));
    while starts.fire(at(10), &mut Vec::new()).is_some() {}
    assert_eq!(starts.next_time(), at(1_010));
    // Without limits nothing is remembered of a key that runs nothing.
    for _ in 0..9 {
        starts.ended(flow(1), at(20));
    }
    starts.limit(StartRules::default(), std::iter::empty(), at(30), Timestamp::from_millis(0));
    while starts.fire(at(30), &mut Vec::new()).is_some() {}
    assert!(starts.is_idle() && starts.times.is_empty());
}

#[test]
fn a_clock_that_is_set_back_delays_no_start_for_long() {
    let rate = rate(1, 1_000, 1);
    let limits = StartLimits { throttle: rate, ..of_keys(None, Some(rate)) };
    let mut starts = Starts::new();
    let hour = 3_600_000;
    starts.limit(StartRules::of(&limits), std::iter::empty(), at(hour), at(hour));
    while starts.fire(at(hour + 1_000), &mut Vec::new()).is_some() {}
    starts.started(flow(1), at(hour + 1_000));
    assert!(starts.waits(flow(1), at(5)));
    while starts.next_time() <= at(1_005) {
        let _ = starts.fire(starts.next_time(), &mut Vec::new());
    }
    assert_eq!(starts.admission(flow(1), at(1_005)).starts, 1);
}

#[test]
fn what_is_remembered_of_a_key_holds_the_tags_of_a_job() {
    let mut owners = Owners::default();
    let owner = owners.key(&OwnerId::operator());
    let tags = Tags::new([("policy/key", "1")]).unwrap().unwrap();
    let mut starts = limited(&of_keys(None, Some(rate(1, 1_000, 1))));
    assert!(starts.started(flow(1), BEGIN), "its tags are to be held");
    starts.hold(flow(1), (owner, tags.clone()));
    assert!(!starts.waits(flow(1), BEGIN), "they are held already");
    assert_eq!(starts.ended(flow(1), at(1)), None);
    let mut released = Vec::new();
    assert_eq!(starts.fire(at(1_000), &mut released), Some(flow(1)));
    assert_eq!(released.into_iter().map(|(_, tags)| tags).collect::<Vec<_>>(), [tags]);
}

proptest! {
    /// Claims as many jobs as permitted at random times, over restarts, and ends them at random.
    #[test]
    fn no_window_has_more_starts_than_its_rate(
        (jobs, per_ms, burst) in (1..8_u32, 1..2_000_u64, 1..6_u32),
        max in prop::option::of(1..5_u32),
        steps in prop::collection::vec((0..900_u64, 0..6_u32, 0..12_u8), 1..120),
    ) {
        let rate = rate(jobs, per_ms, burst);
        let limits = StartLimits { throttle: rate, ..of_keys(max, Some(rate)) };
        let mut starts = limited(&limits);
        let (mut now, mut all, mut running) = (BEGIN, Vec::new(), 0);
        for (pause, ends, kind) in steps {
            now = now.plus_millis(pause);
            if kind == 0 {
                // Another process opens the store; the jobs have run on, or wait again.
                starts = Starts::new();
                starts.limit(StartRules::of(&limits), std::iter::empty(), now, now);
                (0..running).for_each(|_| starts.restore(flow(1)));
            }
            while starts.fire(now, &mut Vec::new()).is_some() {}
            while starts.permitted() > 0 && starts.admission(flow(1), now).starts > 0 {
                starts.started(flow(1), now);
                all.push(now);
                running += 1;
                prop_assert!(max.is_none_or(|max| running <= max));
            }
            for _ in 0..ends.min(running) {
                starts.ended(flow(1), now);
                running -= 1;
            }
        }
        for (index, first) in all.iter().enumerate() {
            let until = first.plus_millis(per_ms);
            let window = all[index..].iter().take_while(|at| **at < until).count() as u32;
            prop_assert!(window < jobs + burst, "{window} of {jobs} + {burst} - 1");
        }
        // It goes on, and after a long time with a whole burst.
        let later = now.plus_millis(per_ms * u64::from(burst) + 1);
        while starts.fire(later, &mut Vec::new()).is_some() {}
        prop_assert!(starts.permitted() > 0);
        starts.plan_endpoint(later);
        prop_assert_eq!(starts.permitted(), burst);
    }
}
