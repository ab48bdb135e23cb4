//! Expectations of a status, an output, chunks and a log, and those that cannot be met.

use serde_json::json;

use super::super::observed::ObservedLocally;
use super::*;

fn seen(status: JobStatus, output: &Value) -> Observed {
    let local =
        ObservedLocally { fuel: Some(50), memory_bytes_peak: 0, log: vec![], stack: vec![] };
    Observed {
        status,
        output: (status == JobStatus::Completed).then(|| Json::from_value(output)),
        error: (status != JobStatus::Completed).then(|| "no flour".to_owned()),
        chunks: Some([Json::from_value(&1), Json::from_value(&"b")].into_iter().collect()),
        run_us: 7_900,
        head: None,
        local: Some(local),
    }
}

fn complaints(expectation: &Expectation, seen: &Observed) -> Vec<String> {
    expectation.differences(seen).iter().map(ToString::to_string).collect()
}

#[test]
fn each_expectation_holds_or_says_why_not() {
    use JobStatus::{Completed, Failed, TimedOut};
    let none = Expectation::default;
    let pattern = |text| Some(regex("r", text).unwrap());
    let int = || Some(schema(&json!({"properties": {"n": {"type": "integer"}}})).unwrap());
    let cases = [
        (none(), Completed, json!(1), vec![]),
        (none(), Failed, json!(1), vec!["status: expected COMPLETED, got FAILED: no flour"]),
        (Expectation { output: Some(json!(null)), ..none() }, Completed, json!(null), vec![]),
        (
            Expectation { output: Some(json!(null)), ..none() },
            Completed,
            json!(1),
            vec!["$: expected null, got 1"],
        ),
        (Expectation { subset: Some(json!({})), ..none() }, Completed, json!({"a": 1}), vec![]),
        (Expectation { schema: int(), ..none() }, Completed, json!({"n": 1.0}), vec![]),
        (
            Expectation { schema: int(), ..none() },
            Completed,
            json!({"n": "x"}),
            vec![
                "$: expected a value that `expected_schema` allows (`$.n` must be an integer (`type`), not \"x\"), got {\"n\":\"x\"}",
            ],
        ),
        (Expectation { regex: pattern("^a"), ..none() }, Completed, json!("ab"), vec![]),
        (Expectation { regex: pattern("\"b\":1"), ..none() }, Completed, json!({"b": 1}), vec![]),
        (
            Expectation { regex: pattern("^a$"), ..none() },
            Completed,
            json!("ab"),
            vec!["$: expected a match of /^a$/, got ab"],
        ),
        (Expectation { error: pattern("flour$"), ..none() }, Failed, json!(1), vec![]),
        (
            Expectation { error: pattern("water"), ..none() },
            Failed,
            json!(1),
            vec!["error: expected a match of /water/, got no flour"],
        ),
        (
            Expectation { error: pattern("flour"), ..none() },
            Completed,
            json!(1),
            vec!["status: expected FAILED, got COMPLETED"],
        ),
        (
            Expectation { error: pattern("flour"), ..none() },
            TimedOut,
            json!(1),
            vec!["status: expected FAILED, got TIMED_OUT: no flour"],
        ),
        (Expectation { status: Some(TimedOut), ..none() }, TimedOut, json!(1), vec![]),
        (
            Expectation { max_ms: Some(7), max_fuel: Some(50), ..none() },
            Completed,
            json!(1),
            vec![],
        ),
        (
            Expectation { max_ms: Some(6), max_fuel: Some(49), ..none() },
            Completed,
            json!(1),
            vec![
                "max_ms: expected at most 6 ms, got 7 ms",
                "max_fuel: expected at most 49, got 50",
            ],
        ),
        (
            Expectation { timeout_ms: Some(6), ..none() },
            Completed,
            json!(1),
            vec!["timeout: expected at most 6 ms, got 7 ms"],
        ),
    ];
    for (expectation, status, output, expected) in cases {
        assert_eq!(complaints(&expectation, &seen(status, &output)), expected, "{expectation:?}");
    }
}

#[test]
fn the_head_of_an_answer_is_compared() {
    let head = |status| {
        let headers = [("x-a", "1"), ("x-b", "2"), ("x-b", "3")];
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append::<HeaderName>(name, value);
        }
        ObservedHead { status: StatusCode::from_u16(status).unwrap(), headers: all }
    };
    let check = |status, expected: Option<u16>, headers: &[(&str, Option<&str>)]| {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.map(str::to_owned)));
        let status_expected = expected.map(|code| StatusCode::from_u16(code).unwrap());
        let answer = AnswerExpectation { status: status_expected, headers: headers.collect() };
        let expectation = Expectation { answer: Some(answer), ..Expectation::default() };
        let seen = seen(JobStatus::Completed, &json!("rye"));
        complaints(&expectation, &Observed { head: Some(head(status)), ..seen })
    };
    let right = [("x-a", Some("1")), ("x-b", Some("2, 3")), ("x-c", None)];
    assert_eq!(check(200, None, &right), [""; 0]);
    assert_eq!(check(404, Some(404), &right), [""; 0]);
    assert_eq!(check(404, None, &[]), ["status: expected one below 400, got 404"]);
    let wrong = [("x-a", Some("2")), ("x-b", None), ("x-c", Some("1"))];
    let found = check(200, Some(201), &wrong);
    let expected = [
        "status: expected 201, got 200",
        "header x-a: expected 2, got 1",
        "header x-b: expected nothing, got 2, 3",
        "header x-c: expected 1, got nothing",
    ];
    assert_eq!(found, expected);
}

#[test]
fn chunks_are_counted_or_compared() {
    let seen = seen(JobStatus::Completed, &json!(null));
    let of =
        |value| Expectation { chunks: Some(Chunks::new(value).unwrap()), ..Expectation::default() };
    for right in [json!(2), json!([1, "b"])] {
        assert_eq!(complaints(&of(right), &seen), [""; 0]);
    }
    assert_eq!(complaints(&of(json!(3)), &seen), ["number of chunks: expected 3, got 2"]);
    let less = complaints(&of(json!([1])), &seen);
    assert_eq!(less, ["chunks[1]: expected nothing, got \"b\""]);
    for wrong in [json!(-1), json!("2"), json!({})] {
        assert!(Chunks::new(wrong).unwrap_err().to_string().contains("a list of outputs"));
    }
}

#[test]
fn chunks_that_are_too_large_to_compare_are_counted() {
    let half = Json::from_value(&"x".repeat(CHUNKS_BYTES_MAX / 2));
    let chunks = [half.clone(), half, Json::null()].into_iter().collect();
    let seen = Observed { chunks: Some(chunks), ..seen(JobStatus::Completed, &json!(null)) };
    let of =
        |value| Expectation { chunks: Some(Chunks::new(value).unwrap()), ..Expectation::default() };
    assert_eq!(complaints(&of(json!(3)), &seen), [""; 0]);
    assert_eq!(complaints(&of(json!(1)), &seen), ["number of chunks: expected 1, got 3"]);
    let refused = "chunks: expected at most 40 MiB, got 3 chunks that are too large to compare";
    assert_eq!(complaints(&of(json!([null])), &seen), [refused]);
}

#[test]
fn impossible_expectations_are_refused() {
    let error = Some(regex("expected_error", "x").unwrap());
    let both = Expectation { error: error.clone(), output: Some(json!(1)), ..Default::default() };
    assert!(both.check().unwrap_err().to_string().contains("`expected_error`"));
    let status = Some(JobStatus::TimedOut);
    let timed_out = Expectation { error, status, ..Default::default() };
    assert!(timed_out.check().unwrap_err().to_string().contains("TIMED_OUT"));
    let no_output = Expectation { output: Some(json!(1)), status, ..Default::default() };
    assert!(no_output.check().unwrap_err().to_string().contains("`expected_status`"));
    assert!(Expectation::default().check().is_ok());
    assert!(regex("expected_regex", "(").unwrap_err().to_string().contains("expected_regex"));
    assert!(schema(&json!({"type": "grain"})).is_err());
    let elsewhere = json!({"$ref": "http://127.0.0.1:9/schema.json"});
    assert!(schema(&elsewhere).is_err(), "nothing is fetched");
}
