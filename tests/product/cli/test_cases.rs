//! `gristmill test`: cases from a file, on this machine and on an endpoint.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use gristmill_tests::{Reply, ScriptedServer, command, eventually, guests, shared_host};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::{Finished, end, on, run_args};
use crate::project::{inside, project};

/// A file of cases in a temporary directory.
struct Cases {
    _dir: TempDir,
    file: PathBuf,
}

impl Cases {
    fn new(tests: &Value) -> Self {
        Self::of_text(&json!({ "tests": tests }).to_string())
    }

    fn of_text(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cases.json");
        fs::write(&file, text).unwrap();
        Self { _dir: dir, file }
    }

    /// Tests the playground on these cases.
    fn run(&self, options: &[&str]) -> Finished {
        let playground = guests::playground().display().to_string();
        let file = self.file.display().to_string();
        let arguments = ["test", &playground, "--cases", &file];
        run_args(command(), arguments.into_iter().chain(options.iter().copied()), "")
    }
}

/// One case of each kind; all of them pass.
fn right() -> Value {
    json!([
        { "name": "nothing expected", "input": { "op": "echo" } },
        { "name": "output", "input": { "op": "echo", "value": [1, { "a": null }] },
          "expected_output": { "echo": [1.0, { "a": null }] }, "timeout": 60_000 },
        { "name": "subset", "input": { "op": "echo", "value": { "a": 1, "b": 2 } },
          "expected_subset": { "echo": { "b": 2 } } },
        { "name": "schema", "input": { "op": "echo", "value": 3 },
          "expected_schema": { "required": ["echo"], "properties": { "echo": { "maximum": 3 } } } },
        { "name": "regex", "input": { "op": "output", "bytes": 3 }, "expected_regex": "^xxx$" },
        { "name": "chunks", "input": { "op": "stream", "count": 2 },
          "expected_chunks": [{ "i": 0 }, { "i": 1 }], "expected_output": [{ "i": 0 }, { "i": 1 }] },
        { "name": "count", "input": { "op": "stream", "count": 5 }, "expected_chunks": 5 },
        { "name": "error", "input": { "op": "fail", "message": "no flour" },
          "expected_error": "^no fl" },
        { "name": "budgets", "input": { "op": "echo" }, "max_ms": 60_000 },
    ])
}

/// The same cases, each with a wrong expectation, and the expected complaints.
fn wrong() -> (Value, Vec<(&'static str, &'static str)>) {
    let cases = json!([
        { "name": "completes", "input": { "op": "fail", "message": "no flour" } },
        { "name": "output", "input": { "op": "echo", "value": { "n": [1, 2] } },
          "expected_output": { "echo": { "n": [1, 3] }, "x": 1 } },
        { "name": "null", "input": { "op": "echo" }, "expected_output": null },
        { "name": "subset", "input": { "op": "echo", "value": 1 }, "expected_subset": { "b": 2 } },
        { "name": "schema", "input": { "op": "echo", "value": 4 },
          "expected_schema": { "properties": { "echo": { "maximum": 3 } } } },
        { "name": "regex", "input": { "op": "output", "bytes": 3 }, "expected_regex": "^x$" },
        { "name": "chunks", "input": { "op": "stream", "count": 1 },
          "expected_chunks": [{ "i": 1 }] },
        { "name": "count", "input": { "op": "stream", "count": 1 }, "expected_chunks": 2 },
        { "name": "error", "input": { "op": "fail", "message": "a" }, "expected_error": "b" },
        { "name": "no error", "input": { "op": "echo" }, "expected_error": "b" },
        { "name": "status", "input": { "op": "echo" }, "expected_status": "FAILED" },
    ]);
    let said = vec![
        ("completes", "status: expected COMPLETED, got FAILED: no flour"),
        ("output", "$.echo.n[1]: expected 3, got 2"),
        ("null", "$: expected null, got {\"echo\":null}"),
        ("subset", "$.b: expected 2, got nothing"),
        (
            "schema",
            "$: expected a value that `expected_schema` allows (`$.echo` must be at most 3 (`maximum`), not 4)",
        ),
        ("regex", "$: expected a match of /^x$/, got xxx"),
        ("chunks", "chunks[0].i: expected 1, got 0"),
        ("count", "number of chunks: expected 2, got 1"),
        ("error", "error: expected a match of /b/, got a"),
        ("no error", "status: expected FAILED, got COMPLETED"),
        ("status", "status: expected FAILED, got COMPLETED"),
    ];
    (cases, said)
}

/// Asserts that each case failed, with its complaint on the line below.
fn assert_said(shown: &Finished, said: &[(&str, &str)]) {
    let lines: Vec<_> = shown.stdout.lines().collect();
    for (name, what) in said {
        let start = format!("FAIL {name} (");
        let at = lines.iter().position(|line| line.starts_with(&start));
        let at = at.unwrap_or_else(|| panic!("{name}: {shown:?}"));
        let below = lines[at + 1..].iter().take_while(|line| line.starts_with("     "));
        assert!(below.clone().any(|line| line.contains(what)), "{name}: {what}: {shown:?}");
    }
}

#[test]
fn every_expectation_can_hold_and_fail() {
    let shown = Cases::new(&right()).run(&[]).succeeded();
    assert_eq!(shown.stdout.matches("PASS ").count(), 9, "{shown:?}");
    let last = shown.stdout.lines().last().unwrap();
    assert!(last.starts_with("9 passed in ") && last.ends_with(" s"), "{last}");

    let (cases, said) = wrong();
    let shown = Cases::new(&cases).run(&[]);
    assert_eq!(shown.code, 1, "{shown:?}");
    assert_said(&shown, &said);
    assert!(shown.stdout.contains("\n0 passed, 11 failed in "), "{shown:?}");
}

#[test]
fn limits_of_a_case_and_of_all() {
    let spin = json!({ "op": "spin" });
    let cases = Cases::new(&json!([
        { "name": "timeout", "input": spin, "timeout": 50, "expected_status": "TIMED_OUT" },
        { "name": "late", "input": spin, "timeout": 50 },
        { "name": "fuel", "input": { "op": "sha256", "rounds": 100 }, "max_fuel": 1 },
        { "name": "time", "input": { "op": "sleep", "ms": 20 }, "max_ms": 1 },
        { "name": "memory", "input": { "op": "alloc", "mib": 64 }, "expected_error": "memory limit" },
        { "name": "env", "input": { "op": "env", "name": "GRAIN" }, "env": { "GRAIN": "rye" },
          "expected_output": { "env": "rye" } },
        { "name": "env of all", "input": { "op": "env", "name": "GRAIN" },
          "expected_output": { "env": "oat" } },
        { "name": "traps", "input": { "op": "trap" } },
    ]));
    let shown = cases.run(&["--memory-mib", "32", "--env", "GRAIN=oat", "--jobs", "3"]);
    let said = [
        (
            "late",
            "status: expected COMPLETED, got TIMED_OUT: executionTimeout exceeded after 50 ms",
        ),
        ("fuel", "max_fuel: expected at most 1, got "),
        ("time", "max_ms: expected at most 1 ms, got "),
        ("traps", "its stack is not shown"),
    ];
    assert_said(&shown, &said);
    assert!(shown.stdout.contains("\n4 passed, 4 failed in "), "{shown:?}");

    let unmetered = cases.run(&["--metering", "epoch", "--filter", "fuel"]).succeeded();
    assert!(unmetered.stderr.contains("`max_fuel`"), "{unmetered:?}");
}

#[test]
fn a_failed_case_shows_what_its_handler_logged() {
    let input = json!({ "op": "stdout", "bytes": 64 });
    let case = json!({ "name": "a", "input": input, "expected_output": 1 });
    let shown = Cases::new(&json!([case])).run(&[]);
    assert_said(&shown, &[("a", "log info: ")]);
}

#[test]
fn a_filter_chooses_cases_by_name() {
    let cases = Cases::new(&right());
    let shown = cases.run(&["--filter", "ch"]).succeeded();
    assert!(
        shown.stdout.contains("PASS chunks") && shown.stdout.contains("\n2 passed"),
        "{shown:?}"
    );
    cases.run(&["--filter", "wheat"]).failed(1, &["no case", "`wheat`"]);
}

#[test]
fn json_and_junit_say_the_same() {
    let (failing, _) = wrong();
    let mut tests = right();
    tests.as_array_mut().unwrap().push(failing[1].clone());
    let cases = Cases::new(&tests);
    let junit = cases.file.with_extension("xml");
    let shown = cases.run(&["--json", "--junit", junit.to_str().unwrap()]);
    assert_eq!(shown.code, 1, "{shown:?}");
    let document = shown.json();
    assert_eq!((&document["passed"], &document["failed"]), (&json!(9), &json!(1)));
    assert_eq!(document["tests"][1]["output"], json!({ "echo": [1, { "a": null }] }));
    assert!(document["tests"][1]["fuel"].as_u64().unwrap() > 0, "{document}");
    let failed = &document["tests"][9];
    assert_eq!((&failed["result"], &failed["status"]), (&json!("failed"), &json!("COMPLETED")));
    let first = json!({ "at": "$.echo.n[1]", "expected": "3", "got": "2" });
    assert_eq!(failed["differences"][0], first);

    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("tests=\"10\"") && xml.contains("failures=\"1\""), "{xml}");
    assert!(xml.contains("$.echo.n[1]: expected 3, got 2"), "{xml}");
}

#[test]
fn record_writes_the_observed_results() {
    let text = "{\n  \"tests\": [\n    {\n      \"name\": \"a\",\n      \"input\": {\"op\": \"echo\", \
                \"value\": 9007199254740993}\n    },\n    {\"name\": \"b\", \"input\": {\"op\": \
                \"fail\"}, \"expected_error\": \"\"}\n  ]\n}\n";
    let cases = Cases::of_text(text);
    let shown = cases.run(&["--record"]).succeeded();
    assert!(shown.stderr.contains("recorded the outputs of 1 cases"), "{shown:?}");
    let expected = text.replace(
        "9007199254740993}\n",
        "9007199254740993},\n      \"expected_output\": {\"echo\":9007199254740993}\n",
    );
    assert_eq!(fs::read_to_string(&cases.file).unwrap(), expected);
    cases.run(&["--record"]).succeeded();
    assert_eq!(fs::read_to_string(&cases.file).unwrap(), expected, "nothing is left to record");
}

#[test]
fn an_output_that_a_file_of_cases_cannot_have_is_not_recorded() {
    let text = r#"{"tests":[{"name":"huge","input":{"op":"echo","value":1e999}},
        {"name":"half","input":{"op":"echo","value":"\ud800"}},
        {"name":"rye","input":{"op":"echo","value":7}}]}"#;
    let cases = Cases::of_text(text);
    let shown = cases.run(&["--record"]).succeeded();
    for name in ["huge", "half"] {
        let said = format!("the output of case `{name}` is not recorded");
        assert!(shown.stderr.contains(&said), "{shown:?}");
    }
    assert!(shown.stderr.contains("recorded the outputs of 1 cases"), "{shown:?}");
    let recorded = r#""value":7}, "expected_output": {"echo":7}}"#;
    let expected = text.replace(r#""value":7}}"#, recorded);
    assert_eq!(fs::read_to_string(&cases.file).unwrap(), expected);
    cases.run(&[]).succeeded();
}

#[test]
fn a_stream_of_any_size_is_counted() {
    // 50 MB, more than is kept of a case.
    let input = json!({ "op": "chunk", "bytes": 500_000, "count": 100 });
    let cases = Cases::new(&json!([
        { "name": "nothing expected", "input": input },
        { "name": "count", "input": input, "expected_chunks": 100 },
        { "name": "outputs", "input": input, "expected_chunks": ["x"] },
    ]));
    let shown = cases.run(&["--jobs", "1"]);
    assert_eq!(shown.code, 1, "{shown:?}");
    assert_said(&shown, &[("outputs", "got 100 chunks that are too large to compare")]);
    assert!(shown.stdout.contains("\n2 passed, 1 failed in "), "{shown:?}");
}

#[test]
fn a_file_with_unknown_fields_is_refused() {
    let of = |more: &str| format!(r#"{{"tests":[{{"name":"a","input":{{}}{more}}}]}}"#);
    for (text, words) in [
        (of(r#","expectedOutput":{}"#), vec!["case 1", "`expectedoutput`", "`expected_output`"]),
        (of(r#","expected_status":"DONE""#), vec!["case 1 (`a`)", "completed, failed"]),
        (of(r#","timeout":0"#), vec!["`timeout` must be 1 to"]),
        (r#"{"tests":[{"name":"a"}]}"#.to_owned(), vec!["`input` is missing"]),
        (r#"{"tests":[]}"#.to_owned(), vec!["`tests` is empty"]),
        (r#"{"cases":[]}"#.to_owned(), vec!["unknown field `cases`", "`tests`"]),
        ("{".to_owned(), vec!["cases.json"]),
    ] {
        let shown = Cases::of_text(&text).run(&[]).failed(1, &words);
        assert!(shown.stdout.is_empty(), "{shown:?}");
    }
    let playground = guests::playground().display().to_string();
    let nowhere = ["test", &playground, "--cases", "not-there.json"];
    run_args(command(), nowhere, "").failed(1, &["not-there.json"]);
    Cases::new(&right()).run(&["--jobs", "0"]).failed(2, &["--jobs"]);
}

#[test]
fn the_hosted_services_file_is_accepted_and_its_config_reported_as_ignored() {
    let tests = json!([{ "name": "a", "input": { "op": "echo" }, "timeout": 10_000 }]);
    let file = json!({ "tests": tests, "config": { "gpuCount": 1, "env": [] } });
    let shown = Cases::of_text(&file.to_string()).run(&[]).succeeded();
    assert!(shown.stderr.contains("`config`") && shown.stderr.contains("ignored"), "{shown:?}");
}

#[test]
fn a_projects_cases_are_found() {
    let project = project("[env]\nGRAIN = \"rye\"\n");
    let test = || run_args(inside(project.path()), ["test"], "");
    test().failed(1, &["no cases", "--cases file", "tests.json"]);
    let case = json!({ "name": "a", "input": { "op": "env", "name": "GRAIN" },
                       "expected_output": { "env": "rye" } });
    let file = project.path().join("tests.json");
    fs::write(file, json!({ "tests": [case] }).to_string()).unwrap();
    test().succeeded();
}

#[tokio::test]
async fn the_same_cases_run_on_an_endpoint() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-test", json!({})).await;
    let on_endpoint = |cases: &Cases| {
        let file = cases.file.display().to_string();
        run_args(on(&host), ["test", "--endpoint", "cli-test", "--cases", &file], "")
    };
    let mut tests = right();
    let more = json!([
        { "name": "fuel", "input": { "op": "echo" }, "max_fuel": 1 },
        { "name": "env", "input": { "op": "echo" }, "env": { "A": "b" } },
    ]);
    tests.as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
    let shown = on_endpoint(&Cases::new(&tests)).succeeded();
    assert!(shown.stdout.contains("\n10 passed, 1 skipped in "), "{shown:?}");
    assert!(shown.stdout.contains("SKIP env (an endpoint has its own env)"), "{shown:?}");
    assert!(shown.stderr.contains("`max_fuel`"), "{shown:?}");

    let (cases, said) = wrong();
    let shown = on_endpoint(&Cases::new(&cases));
    assert_eq!(shown.code, 1, "{shown:?}");
    assert_said(&shown, &said);

    let file = Cases::new(&right()).file.display().to_string();
    let wrong = ["test", "x.wasm", "--endpoint", "cli-test", "--cases", &file];
    run_args(on(&host), wrong, "").failed(1, &["x.wasm", "--endpoint"]);
    let wrong = ["test", "--endpoint", "cli-test", "--env", "A=b"];
    run_args(on(&host), wrong, "").failed(2, &["--env"]);
    let cases = Cases::new(&right());
    let file = cases.file.display().to_string();
    let nobody = ["test", "--endpoint", "no-such-endpoint", "--cases", &file];
    run_args(on(&host), nobody, "").failed(1, &["not found"]);
}

/// A host that answers the submission with each number, from 0 on, by `submit`, and completes every
/// job.
async fn scripted_host(submit: impl Fn(usize) -> Reply + Send + Sync + 'static) -> ScriptedServer {
    let submissions = AtomicUsize::new(0);
    ScriptedServer::start(move |_, head| match head.starts_with("POST /v2/mill/run ") {
        true => submit(submissions.fetch_add(1, Ordering::Relaxed)),
        false => Reply::ok(
            r#"{"id":"j","status":"COMPLETED","delayTime":1,"executionTime":2,"output":{"n":7}}"#,
        ),
    })
    .await
}

fn accepted() -> Reply {
    Reply::ok(r#"{"id":"j","status":"IN_QUEUE"}"#)
}

fn refused(status: &'static str, code: &str) -> Reply {
    let body = format!(r#"{{"error":"the mill burns","code":"{code}"}}"#);
    Reply { body: body.into(), ..Reply::with(status, &["Retry-After: 0"]) }
}

fn test_on(host: &ScriptedServer, cases: &Cases, options: &[&str]) -> Finished {
    let mut command = command();
    command.env("GRISTMILL_URL", format!("http://{}", host.host()));
    let file = cases.file.display().to_string();
    let arguments = ["test", "--endpoint", "mill", "--cases", &file, "--jobs", "1"];
    run_args(command, arguments.into_iter().chain(options.iter().copied()), "")
}

#[tokio::test(flavor = "multi_thread")]
async fn cases_wait_while_the_host_refuses_them_for_a_reason_that_passes() {
    let host = scripted_host(|submission| match submission {
        0 => refused("429 Too Many Requests", "rate_limited"),
        1 => refused("429 Too Many Requests", "concurrency_limited"),
        2 => refused("429 Too Many Requests", "queue_full"),
        3 => refused("503 Service Unavailable", "disk_full"),
        4 => refused("503 Service Unavailable", "unavailable"),
        _ => accepted(),
    })
    .await;
    let cases = Cases::new(&json!([{ "input": {} }]));
    let shown = test_on(&host, &cases, &[]).succeeded();
    assert!(shown.stdout.contains("\n1 passed in "), "{shown:?}");
    let heads = host.heads();
    let submissions: Vec<_> = heads.iter().filter(|head| head.starts_with("POST")).collect();
    assert_eq!(submissions.len(), 6, "{heads:?}");
    // The host makes one job of all submissions with one key.
    let key = |head: &str| {
        head.lines().find(|line| line.starts_with("idempotency-key: ")).unwrap().to_owned()
    };
    assert!(submissions.iter().all(|head| key(head) == key(submissions[0])), "{heads:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_host_keeps_the_results_so_far() {
    let host = scripted_host(|submission| match submission % 3 {
        2 => refused("500 Internal Server Error", "internal"),
        _ => accepted(),
    })
    .await;
    let names = ["a", "b", "c", "d"];
    let cases = Cases::new(&json!(names.map(|name| json!({ "name": name, "input": {} }))));
    let junit = cases.file.with_extension("xml");
    let shown = test_on(&host, &cases, &["--record", "--junit", junit.to_str().unwrap()])
        .failed(1, &["error: case `c`: the mill burns"]);
    assert_eq!(shown.stdout.matches("PASS ").count(), 2, "{shown:?}");
    assert!(shown.stdout.contains("\n2 passed, 2 without a result in "), "{shown:?}");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("tests=\"3\"") && xml.contains("errors=\"1\""), "{xml}");
    assert!(xml.contains("the mill burns"), "{xml}");
    let file = fs::read_to_string(&cases.file).unwrap();
    assert_eq!(file.matches(r#""expected_output": {"n":7}"#).count(), 2, "{file}");

    let shown = test_on(&host, &cases, &["--json"]).failed(1, &["the mill burns"]);
    let document = shown.json();
    assert_eq!((&document["passed"], &document["failed"]), (&json!(2), &json!(0)));
    assert_eq!(document["error"], "case `c`: the mill burns");
    assert_eq!(document["tests"].as_array().unwrap().len(), 2, "{document}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_run_cancels_its_jobs_on_the_host() {
    let submissions = AtomicUsize::new(0);
    let host = ScriptedServer::start(move |_, head| {
        if head.starts_with("POST /v2/mill/run ") {
            let number = submissions.fetch_add(1, Ordering::Relaxed);
            return Reply::ok(format!(r#"{{"id":"j{number}","status":"IN_QUEUE"}}"#));
        }
        if head.starts_with("POST ") {
            return Reply::ok(r#"{"id":"j","status":"CANCELLED"}"#);
        }
        Reply::ok(r#"{"id":"j","status":"IN_PROGRESS","delayTime":1,"executionTime":2}"#)
    })
    .await;
    let names = ["a", "b", "c"];
    let cases = Cases::new(&json!(names.map(|name| json!({ "name": name, "input": {} }))));
    let calls = |start: &str| {
        let heads = host.heads();
        heads.iter().filter(|head| head.starts_with(start)).count()
    };
    let mut test = command();
    test.env("GRISTMILL_URL", format!("http://{}", host.host()));
    test.args(["test", "--endpoint", "mill", "--jobs", "2", "--cases"]).arg(&cases.file);
    test.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = test.spawn().unwrap();
    for job in ["j0", "j1"] {
        let awaited = format!("GET /v2/mill/status-sync/{job}?");
        eventually("a job is awaited", async || (calls(&awaited) > 0).then_some(())).await;
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let shown = end(child).failed(1, &["error: interrupted"]);
    assert!(shown.stdout.contains("0 passed, 3 without a result in "), "{shown:?}");
    for job in ["j0", "j1"] {
        assert_eq!(calls(&format!("POST /v2/mill/cancel/{job} ")), 1, "{:?}", host.heads());
    }
    assert_eq!(calls("POST /v2/mill/run "), 2, "{:?}", host.heads());
}
