//! Bodies of submissions at their bounds, with mistakes, with ignored fields, and deeply nested.

use axum::response::IntoResponse as _;
use http_body_util::BodyExt as _;

use super::*;

async fn complaint(body: &str) -> String {
    let error = parse(&Bytes::from(body.to_owned())).expect_err(body);
    let bytes = error.into_response().into_body().collect().await.unwrap().to_bytes();
    let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    json["error"].as_str().unwrap().to_owned()
}

fn with_webhook(bytes: usize) -> String {
    let path = "a".repeat(bytes - "https://example.com/".len());
    format!(r#"{{"input":{{}},"webhook":"https://example.com/{path}"}}"#)
}

fn with_bucket(chars: usize) -> String {
    format!(r#"{{"input":{{}},"s3Config":{{"bucketName":"{}"}}}}"#, "é".repeat(chars))
}

#[test]
fn texts_may_be_as_long_as_their_bounds() {
    for body in [with_webhook(WEBHOOK_URL_BYTES_MAX), with_bucket(S3_FIELD_CHARS_MAX)] {
        parse(&Bytes::from(body)).unwrap();
    }
}

#[tokio::test]
async fn mistakes_are_named() {
    let long_webhook = with_webhook(WEBHOOK_URL_BYTES_MAX + 1);
    let long_bucket = with_bucket(S3_FIELD_CHARS_MAX + 1);
    let many: BTreeMap<_, _> = (0..1_000).map(|n| (n.to_string(), "")).collect();
    let many_tags = serde_json::json!({ "input": {}, "tags": many }).to_string();
    let large = "x".repeat(9_000_000);
    let large_tags = format!(r#"{{"input":{{}},"tags":{{"a":"{large}"}}}}"#);
    let members: Vec<_> = (0..33).map(|n| format!("\"m{n}\":0")).collect();
    let large_policy = format!(r#"{{"input":{{}},"policy":{{{}}}}}"#, members.join(","));
    let large_key = format!(r#"{{"input":{{}},"tags":{{"{large}":1}}}}"#);
    let cases = [
        ("", "the body is empty"),
        ("[]", "the body must be a JSON object"),
        ("{", "the body is not valid JSON: EOF"),
        ("{}", "`input` is missing"),
        (r#"{"input":null}"#, "`input` is missing"),
        (r#"{"input":7}"#, "`input` must be a JSON object"),
        (r#"{"input":{},"input":{}}"#, "duplicate field `input`"),
        (r#"{"input":{},"webhook":"ftp://x"}"#, "`webhook` must be an absolute"),
        (r#"{"input":{},"webhook":"http://u:p@x/"}"#, "`webhook` must be an absolute"),
        (r#"{"input":{},"webhook":1}"#, "`webhook` must be a string"),
        (&long_webhook, "`webhook` has 2049 bytes; at most 2048 are allowed"),
        (&long_bucket, "`s3Config.bucketName` has more than 4096 characters, the most allowed"),
        (r#"{"input":{},"policy":[]}"#, "`policy` must be an object"),
        (r#"{"input":{},"policy":[9000,10000,false]}"#, "`policy` must be an object"),
        (r#"{"input":{},"s3Config":["a","b","c","d"]}"#, "`s3Config` must be an object"),
        (r#"{"input":{},"policy":7}"#, "`policy` must be an object"),
        (r#"{"input":{},"policy":{"ttl":9,"ttl":9}}"#, "`policy`: duplicate field `ttl`"),
        (r#"{"input":{},"policy":{"ttl":"1"}}"#, "`policy.ttl` must be an integer"),
        (r#"{"input":{},"policy":{"ttl":1.5}}"#, "`policy.ttl` must be an integer"),
        (r#"{"input":{},"policy":{"delay":-1}}"#, "`policy.delay` must not be negative"),
        (r#"{"input":{},"policy":{"delay":"1 s"}}"#, "`policy.delay` must be an integer"),
        (r#"{"input":{},"policy":{"runAt":1}}"#, "`policy.runAt` must be a string"),
        (r#"{"input":{},"policy":{"runAt":"soon"}}"#, "`policy.runAt` must be a time from 1970 on"),
        (
            r#"{"input":{},"policy":{"delay":1,"runAt":"2026-01-31"}}"#,
            "give only one of `policy.delay`, `policy.runAt` and `policy.debounceMs`",
        ),
        (r#"{"input":{},"policy":{"retry":3}}"#, "`policy.retry` must be an object"),
        (
            r#"{"input":{},"policy":{"retry":{"maxAtempts":3}}}"#,
            "`policy.retry.maxAtempts`: unknown field",
        ),
        (r#"{"input":{},"policy":{"key":1}}"#, "`policy.key` must be a string"),
        (r#"{"input":{},"policy":{"key":""}}"#, "`policy.key` must have 1 to 64 bytes"),
        (r#"{"input":{},"policy":{"strict":1}}"#, "`policy.strict` must be true or false"),
        (
            r#"{"input":{},"policy":{"strict":true,"retires":{},"tt\u0001l":1}}"#,
            "`policy` has no member `retires, tt?l`; leave it out",
        ),
        (&large_policy, "`policy` must have at most 32 members"),
        (r#"{"input":{},"policy":{"retention":[1]}}"#, "`policy.retention` must be an object"),
        (
            r#"{"input":{},"policy":{"retention":{"failed":"1 day"}}}"#,
            "`policy.retention.failed` must be an integer",
        ),
        (
            r#"{"input":{},"policy":{"retention":{"fialed":1}}}"#,
            "`policy.retention`: unknown field `fialed`",
        ),
        (r#"{"input":{},"policy":{"lowPriority":1}}"#, "`policy.lowPriority` must be true"),
        (r#"{"input":{},"s3Config":{"accessId":1}}"#, "`s3Config.accessId` must be a string"),
        (r#"{"input":{},"tags":[]}"#, "`tags` must be an object"),
        (r#"{"input":{},"tags":"a"}"#, "`tags` must be an object"),
        (r#"{"input":{},"tags":{"a":1}}"#, "`tags.a` must be a string"),
        (r#"{"input":{},"tags":{"A":1}}"#, "each key of `tags` must have 1 to 64 characters"),
        (r#"{"input":{},"tags":{"a":"1","a":"1"}}"#, "`tags` has the key `a` twice"),
        (r#"{"input":{},"tags":{"a":"\u0000"}}"#, "`tags.a` has a control character"),
        (&many_tags, "`tags` has more than 16 pairs"),
        (&large_tags, "`tags.a` has 9000000 bytes; at most 256 are allowed"),
        (&large_key, "each key of `tags` must have 1 to 64 characters"),
    ];
    for (body, expected) in cases {
        let complaint = complaint(body).await;
        assert!(complaint.contains(expected), "{body:.99}: {complaint:.999}");
        assert!(complaint.len() < 1_000, "{body:.99}");
    }
}

#[test]
fn invalid_utf_8_is_refused_even_in_ignored_fields() {
    assert!(parse(&Bytes::from_static(b"{\"input\":{},\"other\":\"\xff\"}")).is_err());
}

#[test]
fn unknown_and_null_fields_count_as_absent() {
    let body = r#" {"input": {"a": 9007199254740993}, "webhook": null, "policy": {"x": 1,
            "ttl": null}, "s3Config": {"bucketName": "b", "objectPath": "o"}, "tags": {}, "timeout": 1} "#;
    let submission = parse(&Bytes::from_static(body.as_bytes())).unwrap();
    assert_eq!(submission.input.as_str(), r#"{"a": 9007199254740993}"#);
    assert_eq!(submission.webhook, None);
    assert_eq!(submission.policy, PolicyRequest::default());
    assert_eq!(submission.ignored.0.unwrap(), "x");
    assert_eq!(submission.s3_config.unwrap().bucket_name, "b");
    assert_eq!(submission.tags, None);
}

#[tokio::test]
async fn nesting_is_bounded() {
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
        format!(r#"{{"input":{{"a":{open}{close}}}}}"#)
    };
    assert!(parse(&Bytes::from(nested(128))).is_ok());
    for levels in [129, 1_000_000] {
        assert!(complaint(&nested(levels)).await.contains("deeper than 128 levels"));
    }
}

#[test]
fn every_field_of_the_wire_type_is_read() {
    use gristmill_wire::queue as wire;

    let text = |text: &str| Some(text.to_owned());
    let submission = wire::Submission {
        input: serde_json::from_str(r#"{"a":1}"#).unwrap(),
        webhook: Some("http://h/"),
        policy: Some(wire::Policy {
            execution_timeout: Some(6_000),
            ttl: Some(20_000),
            low_priority: Some(true),
            key: text("acme"),
            priority: Some(7),
            debounce_ms: Some(4),
            debounce_max_ms: Some(9),
            delay: None,
            run_at: None,
            retry: Some(RetryInput { max_attempts: Some(3), ..RetryInput::default() }),
            strict: Some(true),
            retention: Some(wire::Retention {
                completed: Some(61_000),
                failed: Some(62_000),
                cancelled: Some(63_000),
            }),
        }),
        s3_config: Some(wire::S3Config {
            access_id: text("i"),
            access_secret: text("s"),
            bucket_name: text("b"),
            endpoint_url: text("http://o/"),
        }),
        tags: Some([("env".to_owned(), "prod".to_owned())].into()),
    };
    let body = serde_json::to_vec(&submission).unwrap();
    let Submission { input, webhook, policy, s3_config, tags, ignored } =
        parse(&body.into()).unwrap();
    assert_eq!(ignored.0, None);
    let expected = Tags::new([
        ("env", "prod"),
        ("policy/debounce", "9999999999999"),
        ("policy/key", "acme"),
        ("policy/priority", "7"),
    ]);
    assert_eq!(tags, expected.unwrap());
    assert_eq!((input.as_str(), webhook.as_deref()), (r#"{"a":1}"#, Some("http://h/")));
    let expected = PolicyRequest {
        execution_timeout_ms: Some(6_000),
        ttl_ms: Some(20_000),
        low_priority: Some(true),
        start: Start::Debounced { ms: 4, max_ms: 9 },
        retry: Some(RetryInput { max_attempts: Some(3), ..RetryInput::default() }),
        retention: ChosenRetention {
            completed_ms: Some(61_000),
            failed_ms: Some(62_000),
            cancelled_ms: Some(63_000),
        },
    };
    assert_eq!(policy, expected);
    let S3Config { access_id, access_secret, bucket_name, endpoint_url } =
        (*s3_config.unwrap()).clone();
    assert_eq!([access_id, access_secret, bucket_name, endpoint_url], ["i", "s", "b", "http://o/"]);
}
