//! Defaults and bounds of policies.

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// That of the endpoint.
const RULE: Retry = Retry {
    max_attempts: 7,
    initial_delay_ms: 1,
    max_delay_ms: 2,
    factor: 3,
    jitter: 4,
    timeouts: true,
    out_of_memory: false,
};

fn request(timeout: Option<u64>, ttl: Option<u64>) -> PolicyRequest {
    PolicyRequest {
        execution_timeout_ms: timeout,
        ttl_ms: ttl,
        low_priority: None,
        ..PolicyRequest::default()
    }
}

#[test]
fn absent_fields_take_the_defaults() {
    let policy = request(None, None).resolve(Strictness::Refuse, RULE, NOW).unwrap();
    let expected = Policy {
        execution_timeout_ms: None,
        ttl_ms: 86_400_000,
        low_priority: false,
        start: Start::Now,
        retry: None,
    };
    assert_eq!(policy, expected);
}

#[test]
fn a_start_is_at_most_seven_days_away() {
    const DAYS_7: u64 = 604_800_000;
    let resolve = |start, strictness| {
        let request = PolicyRequest { start, ..PolicyRequest::default() };
        request.resolve(strictness, RULE, NOW).map(|policy| policy.start.due(NOW))
    };
    let at = |ms| Start::At(NOW.plus_millis(ms));
    for (start, due_ms) in [
        (Start::Now, None),
        (Start::After(0), None),
        (Start::At(Timestamp::from_millis(5)), None),
        (at(0), None),
        (at(7), Some(7)),
        (Start::After(DAYS_7), Some(DAYS_7)),
        (at(DAYS_7), Some(DAYS_7)),
    ] {
        let due = due_ms.map(|ms| NOW.plus_millis(ms));
        assert_eq!(resolve(start, Strictness::Refuse), Ok(due), "{start:?}");
    }
    for (start, field) in [(Start::After(DAYS_7 + 1), "delay"), (at(DAYS_7 + 1), "runAt")] {
        let refused = resolve(start, Strictness::Refuse).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("policy.{field} must be 0 to 604800000 ms")));
        assert_eq!(resolve(start, Strictness::Clamp), Ok(Some(NOW.plus_millis(DAYS_7))));
    }
}

#[test]
fn the_bounds_are_inclusive_and_named() {
    const DAYS_7: u64 = 604_800_000;
    for inside in [request(Some(5_000), Some(10_000)), request(Some(DAYS_7), Some(DAYS_7))] {
        assert!(inside.resolve(Strictness::Refuse, RULE, NOW).is_ok());
    }
    let cases = [
        (request(Some(4_999), None), "policy.executionTimeout must be 5000 to 604800000 ms"),
        (request(None, Some(9_999)), "policy.ttl must be 10000 to 604800000 ms"),
        (request(None, Some(DAYS_7 + 1)), "policy.ttl must be 10000 to 604800000 ms"),
    ];
    for (outside, complaint) in cases {
        let refused = outside.resolve(Strictness::Refuse, RULE, NOW).unwrap_err();
        assert_eq!(refused.to_string(), complaint);
        assert!(outside.resolve(Strictness::Clamp, RULE, NOW).is_ok());
    }
    let clamped = request(Some(1), Some(u64::MAX)).resolve(Strictness::Clamp, RULE, NOW).unwrap();
    assert_eq!((clamped.execution_timeout_ms, clamped.ttl_ms), (Some(5_000), DAYS_7));
}

#[test]
fn retentions_outside_their_bounds_are_refused_or_clamped() {
    const MINUTE: u64 = 60_000;
    const DAY: u64 = 86_400_000;
    for (value, nearest) in [(MINUTE - 1, MINUTE), (30 * DAY + 1, 30 * DAY), (0, MINUTE)] {
        let chosen = |field: &str| ChosenRetention {
            completed_ms: (field == "completed").then_some(value),
            failed_ms: (field == "failed").then_some(value),
            cancelled_ms: (field == "cancelled").then_some(value),
        };
        for field in ["completed", "failed", "cancelled"] {
            let request = PolicyRequest { retention: chosen(field), ..PolicyRequest::default() };
            let refused = request.resolve_retention(Strictness::Refuse).unwrap_err();
            let expected = format!("policy.retention.{field} must be 60000 to 2592000000 ms");
            assert_eq!(refused.to_string(), expected);
            let clamped = request.resolve_retention(Strictness::Clamp).unwrap();
            let values = [clamped.completed_ms, clamped.failed_ms, clamped.cancelled_ms];
            assert_eq!(values.into_iter().flatten().collect::<Vec<_>>(), [nearest]);
        }
    }
}

#[test]
fn a_rule_of_retries_is_that_of_the_endpoint_with_the_given_fields() {
    let resolve = |given| {
        let request = PolicyRequest { retry: Some(given), ..PolicyRequest::default() };
        request.resolve(Strictness::Clamp, RULE, NOW).map(|policy| policy.retry)
    };
    let given = RetryInput { factor: Some(1), ..RetryInput::default() };
    assert_eq!(resolve(given), Ok(Some(Retry { factor: 1, ..RULE })));
    let refused = resolve(RetryInput { factor: Some(0), ..given }).unwrap_err();
    assert_eq!(refused.to_string(), "`policy.retry.factor` must be 1 to 10, not 0");
}
