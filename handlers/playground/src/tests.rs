use std::time::Duration;

use gristmill_sdk::http::{self, Response};
use gristmill_sdk::testing::{RetryWish, TestContext};
use gristmill_sdk::{Error, Level, S3Config};
use serde_json::json;

use super::play;

fn run(input: &str) -> String {
    TestContext::new().run_json(play, input).unwrap()
}

#[test]
fn values_pass_unread() {
    let value = r#"{"z":9007199254740993,"a":1.50}"#;
    let echo = format!(r#"{{"echo":{value}}}"#);
    assert_eq!(run(&format!(r#"{{"op":"echo","value":{value}}}"#)), echo);
    assert_eq!(run(r#"{"op":"echo"}"#), r#"{"echo":null}"#);
    assert_eq!(run(r#"{"op":"sleep","ms":1,"value":"x"}"#), r#"{"slept":1,"echo":"x"}"#);
}

#[test]
fn fail_says_what_it_was_told() {
    let input = r#"{"op":"fail","message":"no flour"}"#;
    let error = TestContext::new().run_json(play, input).unwrap_err();
    assert!(matches!(&error, Error::Failed(failure) if failure.message == "no flour"));
}

#[test]
fn fail_has_the_wish_that_it_was_told() {
    for (more, wish) in [
        ("", None),
        (r#","retry_after_ms":250"#, Some(RetryWish::After(Duration::from_millis(250)))),
        (r#","never_retry":true"#, Some(RetryWish::Never)),
    ] {
        let ctx = TestContext::new();
        ctx.run_json(play, &format!(r#"{{"op":"fail"{more}}}"#)).unwrap_err();
        assert_eq!(ctx.retry_wish(), wish);
    }
}

#[test]
fn stream_and_chunk_emit_and_return_nothing() {
    let ctx = TestContext::new();
    assert_eq!(ctx.run_json(play, r#"{"op":"stream","count":2}"#).unwrap(), "null");
    assert_eq!(ctx.run_json(play, r#"{"op":"chunk","bytes":3}"#).unwrap(), "null");
    assert_eq!(ctx.outputs(), [json!({ "i": 0 }), json!({ "i": 1 }), json!("xxx")]);
    let ctx = TestContext::new();
    assert_eq!(ctx.run_json(play, r#"{"op":"chunk","bytes":1,"count":2}"#).unwrap(), "null");
    assert_eq!(ctx.outputs(), [json!("x"), json!("x")]);
}

#[test]
fn emit_emits_what_it_is_given_and_ends_as_it_is_told() {
    let ctx = TestContext::new();
    let input = r#"{"openai_route":"/v1","openai_input":
        {"op":"emit","values":[{"z":1.0},"a"],"value":{"z":9007199254740993}}}"#;
    assert_eq!(ctx.run_json(play, input).unwrap(), r#"{"z":9007199254740993}"#);
    assert_eq!(ctx.chunks()[0].text(), r#"{"z":1.0}"#);
    assert_eq!(ctx.outputs(), [json!({ "z": 1.0 }), json!("a")]);
    let error = ctx.run_json(play, r#"{"op":"emit","message":"no flour"}"#).unwrap_err();
    assert_eq!(error.message(), "no flour");
    assert_eq!(run(r#"{"op":"emit"}"#), "null");
}

#[test]
fn progress_counts_from_one() {
    let ctx = TestContext::new();
    assert_eq!(ctx.run_json(play, r#"{"op":"progress","steps":2}"#).unwrap(), r#"{"done":2}"#);
    assert_eq!(ctx.progress_values(), [json!({ "progress": 1 }), json!({ "progress": 2 })]);
}

#[test]
fn sizes_are_exact() {
    assert_eq!(run(r#"{"op":"output","bytes":4}"#), r#""xxxx""#);
    assert_eq!(run(r#"{"op":"alloc","mib":2}"#), r#"{"allocated_mib":2}"#);
    assert_eq!(run(r#"{"op":"stdout","bytes":130}"#), r#"{"printed":130}"#);
}

#[test]
fn environment_is_shown() {
    assert_eq!(run(r#"{"op":"env","name":"GRISTMILL_IS_NOT_SET"}"#), r#"{"env":null}"#);
    assert!(run(r#"{"op":"args"}"#).starts_with(r#"{"args":[""#));
}

#[test]
fn sha256_is_iterated() {
    assert_eq!(
        run(r#"{"op":"sha256"}"#),
        r#"{"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}"#
    );
    assert_eq!(
        run(r#"{"op":"sha256","rounds":2}"#),
        r#"{"sha256":"5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456"}"#
    );
}

#[test]
fn log_logs_its_message() {
    let ctx = TestContext::new();
    assert_eq!(ctx.run_json(play, r#"{"op":"log","message":"hello"}"#).unwrap(), "null");
    assert_eq!(ctx.logs(), [(Level::Info, "hello".to_owned())]);
    let error = ctx.run_json(play, r#"{"op":"log"}"#).unwrap_err();
    assert_eq!(error.message(), "missing field `message`");
}

#[test]
fn fetch_answers_status_and_body() {
    let ctx = TestContext::new().with_http("http://a.example/", Ok(Response::new(200, "hi")));
    assert_eq!(
        ctx.run_json(play, r#"{"op":"fetch","url":"http://a.example/"}"#).unwrap(),
        r#"{"status":200,"length":2,"body":"hi"}"#
    );
    let error = ctx.run_json(play, r#"{"op":"fetch"}"#).unwrap_err();
    assert_eq!(error.message(), "missing field `url`");
}

#[test]
fn fetch_lines_emits_each_line() {
    let url = "http://a.example/";
    let pieces = [Ok("one\ntw"), Ok("o\n"), Err(http::Error::Timeout)];
    let ctx = TestContext::new().with_http_stream(url, Response::new(200, ""), pieces);
    let error =
        ctx.run_json(play, r#"{"op":"fetch_lines","url":"http://a.example/"}"#).unwrap_err();
    assert_eq!(error.message(), "HTTP request timed out");
    assert_eq!(ctx.outputs(), ["one", "two"]);
}

#[test]
fn other_endpoints_are_called() {
    let ctx = TestContext::new().with_call("other", Ok(json!({ "words": 2 })));
    let call = r#"{"op":"call","endpoint":"other","value":{"n":9007199254740993},"key":"k"}"#;
    assert_eq!(ctx.run_json(play, call).unwrap(), r#"{"words":2}"#);
    let submit = r#"{"op":"submit","endpoint":"other","value":{}}"#;
    assert_eq!(ctx.run_json(play, submit).unwrap(), r#""test-job-2""#);
    let keys = ctx.calls().into_iter().map(|call| call.idempotency_key);
    assert_eq!(keys.collect::<Vec<_>>(), [Some("k".to_owned()), None]);
    let error = ctx.run_json(play, r#"{"op":"call","endpoint":"other"}"#).unwrap_err();
    assert_eq!(error.message(), "missing field `value`");
}

/// Natively both calls share one memory; on the platform the second would answer null as well.
#[test]
fn remember_answers_what_was_left() {
    assert_eq!(run(r#"{"op":"remember","value":[1]}"#), r#"{"remembered":null}"#);
    assert_eq!(run(r#"{"op":"remember"}"#), r#"{"remembered":[1]}"#);
}

#[test]
#[should_panic(expected = "trap")]
fn trap_panics_natively() {
    run(r#"{"op":"trap"}"#);
}

#[test]
fn an_unknown_op_lists_the_known_ones() {
    let error = TestContext::new().run_json(play, r#"{"op":"dance"}"#).unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)));
    let message = error.message();
    assert!(
        message.starts_with("op: unknown variant `dance`, expected one of `echo`"),
        "{message}"
    );
    assert!(message.contains("`remember`"), "{message}");
}

#[test]
fn s3_settings_are_proven_and_not_told() {
    assert_eq!(run(r#"{"op":"s3"}"#), r#"{"s3":null}"#);
    let config = S3Config {
        access_id: "a".into(),
        access_secret: "b".into(),
        bucket_name: "c".into(),
        endpoint_url: "d".into(),
    };
    let ctx = TestContext::new().with_s3_config(config);
    assert_eq!(
        ctx.run_json(play, r#"{"op":"s3"}"#).unwrap(),
        // printf 'a\nb\nc\nd' | sha256sum
        r#"{"s3":"f729ae0cbcc8241ebb6918af712a88d5ca2c13f7fbe08f809aa297bfdf99fbe4"}"#
    );
}
