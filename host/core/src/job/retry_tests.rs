use super::*;

const TTL_AT: Timestamp = Timestamp::from_millis(1_000_000_000);
const NOW: Timestamp = Timestamp::from_millis(1_000);

fn rule() -> Retry {
    Retry {
        max_attempts: 4,
        initial_delay_ms: 100,
        max_delay_ms: 350,
        jitter: 0,
        ..Retry::default()
    }
}

fn failed(kind: FailureKind, wish: Option<RetryWish>) -> FailedAttempt {
    FailedAttempt { kind, error: "no".to_owned(), wish, endpoint_rule: rule(), random: 0 }
}

/// The delay in milliseconds, or how the job ends.
fn after(attempt: &FailedAttempt, job: JobRetry) -> Result<u64, AfterFailure> {
    match attempt.decide(job, TTL_AT, NOW) {
        AfterFailure::RunsAgain(at) => Ok(at.millis_since(NOW)),
        end => Err(end),
    }
}

#[test]
fn delays_grow_up_to_their_bound_until_all_attempts_have_failed() {
    let attempt = failed(FailureKind::Error, None);
    let delays = [0, 1, 2, 3, u32::MAX]
        .map(|failures| after(&attempt, JobRetry { failures, ..JobRetry::default() }));
    let end = Err(AfterFailure::EndsExhausted);
    assert_eq!(delays, [Ok(100), Ok(200), Ok(350), end, end]);
    let endless = Retry { max_attempts: 100, factor: 10, max_delay_ms: DELAY_MS.max, ..rule() };
    let late = JobRetry { rule: Some(endless), failures: 90, is_exhausted: false };
    assert_eq!(after(&attempt, late), Ok(DELAY_MS.max));
}

#[test]
fn jitter_takes_up_to_its_part_of_a_delay() {
    let with = |jitter, random| FailedAttempt {
        endpoint_rule: Retry { jitter, ..rule() },
        random,
        ..failed(FailureKind::Error, None)
    };
    let cases = [(0, u32::MAX, 100), (20, 0, 100), (20, 1 << 31, 90), (100, u32::MAX, 1)];
    for (jitter, random, expected) in cases {
        let delay = after(&with(jitter, random), JobRetry::default());
        assert_eq!(delay, Ok(expected), "{jitter} {random}");
    }
}

#[test]
fn failures_are_repeated_as_the_rule_and_the_handler_say() {
    use FailureKind as Kind;
    use RetryWish::{After, Never};
    let plain = Some(rule());
    let all = Some(Retry { timeouts: true, out_of_memory: true, ..rule() });
    let ends = Err(AfterFailure::Ends);
    let cases = [
        (plain, Kind::Error, None, Ok(100)),
        (plain, Kind::Error, Some(Never), ends),
        (plain, Kind::Error, Some(After(7)), Ok(7)),
        (plain, Kind::InvalidInput, None, ends),
        (plain, Kind::InvalidInput, Some(After(0)), Ok(0)),
        (plain, Kind::Timeout, None, ends),
        (plain, Kind::Timeout, Some(After(7)), ends),
        (plain, Kind::OutOfMemory, None, ends),
        (all, Kind::Timeout, None, Ok(100)),
        (all, Kind::OutOfMemory, None, Ok(100)),
        (all, Kind::Timeout, Some(Never), ends),
        (Some(Retry::default()), Kind::Error, None, ends),
        (Some(Retry::default()), Kind::Error, Some(After(7)), ends),
        (None, Kind::Error, None, Ok(100)),
    ];
    for (rule, kind, wish, expected) in cases {
        let job = JobRetry { rule, ..JobRetry::default() };
        assert_eq!(after(&failed(kind, wish), job), expected, "{rule:?} {kind:?} {wish:?}");
    }
}

#[test]
fn a_job_whose_ttl_leaves_no_time_ends_at_once() {
    let attempt = failed(FailureKind::Error, None);
    let decide = |ttl_ms| attempt.decide(JobRetry::default(), NOW.plus_millis(ttl_ms), NOW);
    assert_eq!(decide(100), AfterFailure::EndsExhausted);
    assert_eq!(decide(101), AfterFailure::RunsAgain(NOW.plus_millis(100)));
    // A wish far away has the bound of all delays.
    let far = failed(FailureKind::Error, Some(RetryWish::After(u64::MAX)));
    let bounded = far.decide(JobRetry::default(), Timestamp::NEVER, NOW);
    assert_eq!(bounded, AfterFailure::RunsAgain(NOW.plus_millis(DELAY_MS.max)));
}
