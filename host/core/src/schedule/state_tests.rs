//! Plans by tables, and by a property: each time is decided once, in order.

use proptest::prelude::*;

use super::*;
use crate::id::{ShardId, SubmissionKind};
use crate::schedule::TicksDefinition;

const BEGIN: Timestamp = Timestamp::from_millis(1_000_000_000);

fn at(s: u64) -> Timestamp {
    BEGIN.plus_millis(s * 1_000)
}

/// A time each so many seconds after the begin.
fn every(s: u64) -> Ticks {
    let every_ms = Some(s * 1_000);
    TicksDefinition { every_ms, ..TicksDefinition::default() }.resolve(BEGIN).unwrap()
}

fn job() -> ScheduledJob {
    let id = JobId::generate(SubmissionKind::Async, ShardId(1));
    ScheduledJob { endpoint: EndpointId::new("mill").unwrap(), id }
}

fn catch_up(max_ticks: u32, window_s: u64) -> CatchUp {
    CatchUp { max_ticks, window_ms: window_s * 1_000 }
}

#[test]
fn the_newest_times_run_and_older_ones_are_missed() {
    let cases = [
        // At the first look nothing is due.
        (1, 100, 9, vec![], 0, Some(10)),
        (1, 100, 10, vec![10], 0, Some(20)),
        (1, 100, 35, vec![30], 2, Some(40)),
        (2, 100, 35, vec![20, 30], 1, Some(40)),
        (9, 100, 35, vec![10, 20, 30], 0, Some(40)),
        (9, 10, 35, vec![30], 2, Some(40)),
        (9, 4, 35, vec![], 3, Some(40)),
    ];
    for (max_ticks, window_s, now, run, missed, next) in cases {
        let mut state = ScheduleState::default();
        let plan = state.plan(&every(10), BEGIN, catch_up(max_ticks, window_s), None, at(now));
        let expected: VecDeque<_> = run.into_iter().map(at).collect();
        assert_eq!((plan.run, plan.next), (expected, next.map(at)), "{max_ticks} {window_s} {now}");
        assert_eq!(state.missed, missed, "{max_ticks} {window_s} {now}");
    }
}

#[test]
fn a_decided_time_is_never_due_again() {
    let mut state = ScheduleState::default();
    let first = job();
    state.ran(at(10), first.clone());
    state.skip(at(20), first.id);
    state.miss(at(30), &"é".repeat(REASON_BYTES_MAX));
    assert_eq!((state.jobs, state.skipped, state.missed), (1, 1, 1));
    let plan = state.plan(&every(10), BEGIN, catch_up(9, 100), None, at(40));
    assert_eq!(plan.run, [at(40)]);
    // A clock that was set back shows the same times again.
    state.ran(at(40), job());
    let plan = state.plan(&every(10), BEGIN, catch_up(9, 100), None, at(15));
    assert_eq!((plan.run.len(), plan.next), (0, Some(at(50))));
    assert_eq!(ScheduleState::of_text(&state.text()).unwrap(), state);
    assert_eq!(
        state.last[1].reason.as_deref().unwrap(),
        format!("job `{}` of this schedule had not ended", first.id)
    );
}

#[test]
fn a_long_pause_takes_few_calls() {
    let week = 7 * 86_400;
    let minutely = Ticks::cron("* * * * *", None).unwrap();
    for (ticks, every_s, calls_max) in [(every(1), 1, 1), (minutely, 60, 2)] {
        let mut state = ScheduleState::default();
        let first = ticks.next_after(BEGIN).unwrap();
        let mut calls = 0;
        let plan = loop {
            calls += 1;
            let plan = state.plan(&ticks, BEGIN, catch_up(10, 3_600), Some("full"), at(week));
            if plan.next != Some(at(week)) {
                break plan;
            }
            assert!(plan.run.is_empty());
        };
        let all = at(week).millis_since(first) / (every_s * 1_000) + 1;
        assert_eq!((plan.run.len(), state.missed), (10, all - 10));
        assert!(calls <= calls_max, "{calls}");
        let reason = state.last.back().unwrap().reason.clone().unwrap();
        assert!(reason.starts_with("full; more times"), "{reason}");
    }
}

#[test]
fn a_change_leaves_out_what_is_due_and_begins_anew() {
    for ticks in [every(60), Ticks::cron("* * * * *", None).unwrap()] {
        let mut state = ScheduleState::default();
        assert!(state.settle(&ticks, BEGIN, "changed", at(600)));
        assert_eq!((state.missed, state.decided_to), (10, at(600)));
        assert_eq!(state.last.back().unwrap().reason.as_deref(), Some("changed"));
        // The clock was ahead, and was set back.
        assert!(state.settle(&ticks, BEGIN, "changed", at(300)));
        assert_eq!((state.missed, state.decided_to), (10, at(300)));
    }
}

#[test]
fn a_state_has_a_bounded_size() {
    let counts = ScheduleState { jobs: u64::MAX, ..ScheduleState::default() };
    let mut state = ScheduleState { skipped: u64::MAX, missed: u64::MAX, ..counts };
    let endpoint = EndpointId::new(&"e".repeat(64)).unwrap();
    for at in 0..20 {
        let job = ScheduledJob { endpoint: endpoint.clone(), ..job() };
        state.opened(job.clone());
        let at = Timestamp::from_millis(u64::MAX - at);
        let (outcome, reason) = (TickOutcome::Missed, Some("x".repeat(REASON_BYTES_MAX)));
        state.decide(DecidedTick { at, outcome, job: Some(job), reason });
    }
    let bytes = state.text().len() as u64;
    assert!((BYTES_MAX / 2..=BYTES_MAX).contains(&bytes), "{bytes}");
}

proptest! {
    #[test]
    fn each_time_is_decided_once_and_in_order(
        max_ticks in 1..5_u32,
        window_s in 1..60_u64,
        looks in prop::collection::vec((0..90_u64, 0..4_u8), 1..30),
    ) {
        let (mut state, mut now) = (ScheduleState::default(), BEGIN);
        let mut decided: u64 = 0;
        for (pause_s, kind) in looks {
            now = now.plus_millis(pause_s * 1_000);
            let before = state.decided_to;
            let plan = state.plan(&every(7), BEGIN, catch_up(max_ticks, window_s), None, now);
            for tick in plan.run {
                prop_assert!(tick > state.decided_to && tick <= now);
                match kind {
                    0 => state.skip(tick, job().id),
                    1 => state.miss(tick, "no"),
                    // A refused submission leaves the rest for the next look.
                    2 => break,
                    _ => state.ran(tick, job()),
                }
            }
            prop_assert!(state.decided_to >= before);
            prop_assert!(plan.next.is_some_and(|next| next > now));
            decided = state.jobs + state.skipped + state.missed;
            let elapsed_s = state.decided_to.millis_since(BEGIN) / 1_000;
            prop_assert_eq!(decided, elapsed_s / 7, "each time up to the last decided one");
        }
        prop_assert!(state.open.len() <= OPEN_MAX);
        prop_assert!(decided <= now.millis_since(BEGIN) / 7_000);
    }
}
