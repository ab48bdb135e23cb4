//! Files of cases that are read, and those that are refused.

use super::*;

#[test]
fn the_hosted_services_file_is_read() {
    let text = r#"{"tests":[{"name":"a","input":{"n":9007199254740993},"timeout":10000},
        {"input":{},"expected_output":null}],"config":{"gpuTypeId":"x","env":[]}}"#;
    let (cases, has_config) = parse(text).unwrap();
    assert!(has_config);
    assert_eq!((cases[0].name.as_str(), cases[1].name.as_str()), ("a", "case 2"));
    let CaseCall::Job(input) = &cases[0].call else { panic!("{cases:?}") };
    assert_eq!(input.as_str(), r#"{"n":9007199254740993}"#);
    assert_eq!(cases[0].expectation.timeout_ms, Some(10_000));
    assert!(!cases[0].expectation.is_about_result());
    assert_eq!(cases[1].expectation.output, Some(Value::Null));
    assert!(cases.iter().all(|case| text[case.end..].starts_with('}')));
}

#[test]
fn a_case_may_be_a_request() {
    let text = r#"{"tests":[{"request":"/"},
        {"request":"POST /a?b","headers":{"X-A":"1"},"body":{"n":9007199254740993},
         "expected_status":201,"expected_headers":{"x-b":"2","x-c":null}},
        {"request":"PUT /","body":"rye","expected_status":"FAILED"}]}"#;
    let (cases, _) = parse(text).unwrap();
    let requests: Vec<_> = cases
        .iter()
        .map(|case| match &case.call {
            CaseCall::Request(given) => given,
            CaseCall::Job(input) => panic!("{input:?}"),
        })
        .collect();
    assert_eq!(requests[0].target, "GET /".parse().unwrap());
    assert_eq!(requests[1].body, r#"{"n":9007199254740993}"#);
    assert_eq!(requests[1].headers[header::CONTENT_TYPE], "application/json");
    let expected = cases[1].expectation.answer.as_ref().unwrap();
    assert_eq!((expected.status, expected.headers.len()), (Some(StatusCode::CREATED), 2));
    assert_eq!(requests[2].body, "rye");
    assert!(requests[2].headers.is_empty());
    assert_eq!(cases[2].expectation.status, Some(JobStatus::Failed));
}

#[test]
fn errors_name_the_wrong_value_and_the_allowed_ones() {
    let of = |case: &str| format!(r#"{{"tests":[{{"name":"a","input":{{}}{case}}}]}}"#);
    let cases = [
        (String::new(), "the file is empty; it must be a JSON object such as {\"tests\""),
        ("[]".to_owned(), "expected struct"),
        (r#"{"test":[]}"#.to_owned(), "unknown field `test`, expected `tests` or `config`"),
        (r#"{"tests":[]}"#.to_owned(), "`tests` is empty"),
        (r#"{"tests":[{"name":"a"}]}"#.to_owned(), "case 1 (`a`): `input` is missing"),
        (r#"{"tests":[{"input":[1]}]}"#.to_owned(), "the input must be a JSON object"),
        (of(r#","expectedOutput":1"#), "unknown field `expectedOutput`, expected one of `name`"),
        (of(r#","timeout":0"#), "`timeout` must be 1 to 604800000 ms, not 0"),
        (of(r#","expected_regex":"(""#), "`expected_regex` is not a regular expression"),
        (of(r#","expected_schema":{"type":"grain"}"#), "`expected_schema` is not a JSON Schema"),
        (of(r#","expected_chunks":"2""#), "`expected_chunks` must be a list of outputs"),
        (
            of(r#","expected_status":"IN_QUEUE""#),
            "must be one of COMPLETED, FAILED, CANCELLED, TIMED_OUT, not `IN_QUEUE`",
        ),
        (of(r#","expected_error":"x","expected_output":1"#), "only a COMPLETED job has"),
        (of(r#","env":{"A=B":""}"#), "`env` has a variable `A=B`; a name has"),
        (of(r#","max_ms":-1"#), "expected u64"),
        (of(r#","request":"/""#), "a case has one of them"),
        (of(r#","body":1"#), "belong to a `request`"),
        (of(r#","expected_status":200"#), "belong to a `request`"),
        (of(r#","expected_headers":{}"#), "belong to a `request`"),
        (r#"{"tests":[{"request":"/"},{"input":{}}]}"#.to_owned(), "put them into two files"),
        (r#"{"tests":[{"request":"a"}]}"#.to_owned(), "its path must begin with `/`"),
        (
            r#"{"tests":[{"request":"/","headers":{"a b":""}}]}"#.to_owned(),
            "`a b` is not the name of a header",
        ),
        (
            r#"{"tests":[{"request":"/","expected_status":99}]}"#.to_owned(),
            "must be 200 to 599, not 99",
        ),
        (
            r#"{"tests":[{"request":"/","expected_chunks":1}]}"#.to_owned(),
            "a `request` has no chunks",
        ),
    ];
    for (text, expected) in cases {
        let error = format!("{:#}", parse(&text).unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
    }
    let missing = CaseFile::read(None, Path::new("/nonexistent")).unwrap_err().to_string();
    assert!(missing.contains("--cases FILE"), "{missing}");
}
