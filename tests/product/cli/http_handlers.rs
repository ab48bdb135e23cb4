//! Handlers of HTTP on the command line: a request of `run`, requests as cases of `test`, and a new
//! project that `dev` serves.

use std::fs;

use gristmill_tests::{command, guests, shared_host};
use serde_json::json;

use crate::command::{Finished, on, run, run_args, run_within};
use crate::new_project::{BUILD_PATIENCE, RustProjects};
use crate::project::inside;

/// Sends a request to the playground of HTTP.
fn request(target: &str, options: &[&str]) -> Finished {
    let playground = guests::http_playground().display().to_string();
    let words = ["run", &playground, "--request", target].into_iter();
    run_args(command(), words.chain(options.iter().copied()), "")
}

#[test]
fn run_shows_the_head_of_an_answer_and_its_body_alone_on_stdout() {
    let shown = request("/", &[]).succeeded();
    assert_eq!(shown.stdout, "hello\n");
    assert!(shown.stderr.contains("HTTP 200 OK\n"), "{shown:?}");
    assert!(shown.stderr.contains("fuel") && !shown.stderr.contains("chunks"), "{shown:?}");
    // A status is no failure of the request.
    assert!(request("/status?code=418", &[]).succeeded().stderr.contains("HTTP 418"));
    let head = request("PUT /head?a=%2F", &["-H", "X-One: 1", "--header", "x-one:2"]).succeeded();
    let head = head.json();
    assert_eq!((&head["method"], &head["target"]), (&json!("PUT"), &json!("/head?a=%2F")));
    assert_eq!(head["headers"], json!([["x-one", "1"], ["x-one", "2"]]));
    let playground = guests::http_playground().display().to_string();
    let echo = ["run", &playground, "--request", "POST /echo", "--body", "-"];
    assert_eq!(run_args(command(), echo, "rye\n").succeeded().stdout, "rye\n");
    // Without a request it is the first page.
    assert_eq!(run(command(), &format!("run {playground}")).succeeded().stdout, "hello\n");
}

#[test]
fn run_prints_one_document_of_a_request() {
    let answered = request("/", &["--json"]).succeeded().json();
    assert_eq!(answered["status"], "COMPLETED", "{answered}");
    assert_eq!(answered["answer"]["status"], 200, "{answered}");
    assert_eq!(answered["answer"]["body"], "hello\n", "{answered}");
    assert!(answered["usage"]["fuel"].as_u64() > Some(0), "{answered}");
    let failed = request("/panic", &["--json"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    let failed = failed.json();
    assert_eq!((&failed["status"], failed.get("answer")), (&json!("FAILED"), None), "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("panicked"), "{failed}");
}

#[test]
fn an_answer_that_is_not_whole_makes_run_fail_with_its_reason() {
    // The handler's own panic, not one of the program.
    for (target, head) in [("/panic", false), ("/panic-later", true)] {
        let shown = request(target, &[]);
        assert_eq!((shown.code, shown.stderr.contains("HTTP 200")), (1, head), "{shown:?}");
        let error = shown.stderr.lines().last().unwrap();
        assert!(error.contains("no whole answer: handler panicked"), "{error}");
    }
    request("/unfinished", &[]).failed(1, &["no whole answer"]);
    request("/fail", &[]).failed(1, &["no whole answer", "error"]);
    request("/spin", &["--timeout-ms", "300"]).failed(1, &["executiontimeout exceeded after 300"]);
    request("/alloc?mib=512", &[]).failed(1, &["memory"]);
}

#[test]
fn a_request_and_an_input_are_for_handlers_of_their_kind() {
    request("/", &["--input", "{}"]).failed(2, &["--input", "--request"]);
    for (target, words) in [
        ("flour", &["must begin with `/`"][..]),
        ("GET flour", &["must begin with `/`"]),
        ("TRACE /", &["refuses the method trace"]),
    ] {
        request(target, &[]).failed(2, words);
    }
    request("/", &["-H", "flour"]).failed(2, &["name: value"]);
    request("/", &["--body", "@not-there"]).failed(1, &["not-there"]);
    let run_with = |component: String, words: [&str; 2]| {
        run_args(command(), [["run", &component], words].concat(), "")
    };
    let (http, jobs) = (guests::http_playground(), guests::playground());
    run_with(http.display().to_string(), ["--input", "{}"]).failed(1, &["takes no job"]);
    run_with(jobs.display().to_string(), ["--request", "/"])
        .failed(1, &["answers no http request"]);
    run_with(http.display().to_string(), ["--body", "rye"]).failed(2, &["--request"]);
}

/// Cases that pass, and one that fails in each way.
fn cases() -> String {
    json!({ "tests": [
        { "name": "greets", "request": "/", "expected_status": 200, "expected_output": "hello\n" },
        { "name": "echoes", "request": "POST /echo", "body": { "n": 1 }, "expected_regex": "^.\"n\"" },
        { "name": "is a pot", "request": "/status?code=418", "expected_status": 418 },
        { "name": "panics", "request": "/panic", "expected_error": "panicked" },
        { "name": "wrong status", "request": "/status?code=418" },
        { "name": "wrong header", "request": "/", "expected_headers": { "x-rye": "1" } },
        { "name": "wrong body", "request": "/", "expected_output": "bye" },
    ]})
    .to_string()
}

const COMPLAINTS: [&str; 3] = [
    "status: expected one below 400, got 418",
    "header x-rye: expected 1, got nothing",
    "$: expected \"bye\", got \"hello\\n\"",
];

#[test]
fn requests_are_cases_here_and_on_an_endpoint() {
    let host = shared_host();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tests.json");
    fs::write(&file, cases()).unwrap();
    let playground = guests::http_playground().display().to_string();
    let test = |words: &[&str]| {
        let file = file.display().to_string();
        run_args(on(&host), ["test", "--cases", &file].iter().chain(words), "")
    };
    let name = "http-cases";
    let deployed = run(on(&host), &format!("deploy {playground} --name {name}")).succeeded();
    assert!(!deployed.stderr.contains("webhooks"), "{deployed:?}");
    for place in [&[playground.as_str()][..], &["--endpoint", name]] {
        let shown = test(place);
        shown.failed(1, &[]);
        let shown = test(place);
        assert!(shown.stdout.contains("4 passed, 3 failed"), "{place:?}: {shown:?}");
        for complaint in COMPLAINTS {
            assert!(shown.stdout.contains(complaint), "{place:?}: {shown:?}");
        }
    }
    let document = test(&[&playground, "--json", "--filter", "pot"]).succeeded().json();
    assert_eq!(document["tests"][0]["httpStatus"], 418, "{document}");
    test(&["--endpoint", "no-such-endpoint"]).failed(1, &["no-such-endpoint"]);
    // A handler of jobs answers no request.
    let jobs = guests::playground().display().to_string();
    test(&[&jobs]).failed(1, &["answers no http request"]);
}

#[test]
fn a_new_project_for_http_is_built_and_tested() {
    let projects = RustProjects::new("http");
    // The directory of builds is shared, so that no other project may have the name.
    run(inside(&projects.dir), "new http-mill --kind http --lang rust").succeeded();
    projects.pin("http-mill");
    let project = projects.dir.join("http-mill");
    let run_inside = |words: &[&str]| {
        let mut command = inside(&project);
        projects.prepare(&mut command);
        run_within(BUILD_PATIENCE, command, words, "").succeeded()
    };
    let tested = run_inside(&["test"]);
    assert!(tested.stdout.contains("4 passed"), "{tested:?}");
    let body = r#"{"text":"to be or not"}"#;
    let ran = run_inside(&["run", "--request", "POST /words", "--body", body]);
    assert_eq!(ran.stdout, r#"{"words":4}"#);
    run(inside(&project), "upgrade-sdk").failed(1, &["no copy of the sdk"]);
}
