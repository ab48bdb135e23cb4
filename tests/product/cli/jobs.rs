//! `gristmill submit`, `status`, `stream`, `cancel`, `retry`, `purge` and `health`.

use gristmill_tests::{guests, shared_host};
use serde_json::json;

use crate::command::{on, run, run_args};

#[tokio::test]
async fn submit_prints_an_id_and_with_wait_the_output() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-submit", json!({})).await;
    let input = r#"{"op":"echo","value":9007199254740993}"#;
    let shown = run_args(on(&host), ["submit", "cli-submit", "--input", input], "").succeeded();
    let job = shown.line().to_owned();
    host.client.until("cli-submit", &job, "COMPLETED").await;

    let arguments = ["submit", "cli-submit", "--wait", "--input", input];
    let shown = run_args(on(&host), arguments, "").succeeded();
    assert_eq!(shown.line(), r#"{"echo":9007199254740993}"#);
    let arguments = ["submit", "cli-submit", "--wait", "--json", "--input", input];
    let document = run_args(on(&host), arguments, "").succeeded();
    assert!(document.stdout.contains("9007199254740993"), "{document:?}");
    assert_eq!(document.json()["status"], "COMPLETED");

    // The input may come from a file and from standard input.
    let file = host.scratch().join("input.json");
    std::fs::write(&file, input).unwrap();
    let from_file = format!("@{}", file.display());
    for (source, stdin) in [(from_file.as_str(), ""), ("-", input)] {
        let arguments = ["submit", "cli-submit", "--wait", "--input", source];
        let shown = run_args(on(&host), arguments, stdin).succeeded();
        assert_eq!(shown.line(), r#"{"echo":9007199254740993}"#);
    }
}

#[tokio::test]
async fn submitted_tags_find_the_job_again() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-tagged", json!({ "workersMax": 0 })).await;
    let submit = |tags: &[&str]| {
        let mut arguments = vec!["submit", "cli-tagged", "--input", "{}"];
        tags.iter().for_each(|tag| arguments.extend(["--tag", tag]));
        run_args(on(&host), arguments, "")
    };
    let job = submit(&["env=prod", "cli-tagged=a=b"]).succeeded().line().to_owned();
    submit(&["env=test"]).succeeded();
    let find = ["jobs", "list", "--endpoint", "cli-tagged", "--tag", "cli-tagged=a=b", "--json"];
    let found = run_args(on(&host), find, "").succeeded().json();
    assert_eq!(found["jobs"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(found["jobs"][0]["id"], job);
    assert_eq!(found["jobs"][0]["tags"], json!({ "env": "prod", "cli-tagged": "a=b" }));
    // Not its beginning, which jobs of one moment have in common; the rest begins with a hyphen.
    let find = ["jobs", "list", "--endpoint", "cli-tagged", "--id-part", &job[8..], "--json"];
    let found = run_args(on(&host), find, "").succeeded().json();
    assert_eq!(found["jobs"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(found["jobs"][0]["id"], job);
    submit(&["env=prod", "env=test"]).failed(1, &["the tag `env` is given twice"]);
    submit(&["env"]).failed(2, &["a tag is key=value"]);
}

#[tokio::test]
async fn a_job_that_fails_makes_submit_and_stream_fail() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-fails", json!({})).await;
    let input = r#"{"op":"fail","message":"no flour"}"#;
    let arguments = ["submit", "cli-fails", "--wait", "--input", input];
    let shown = run_args(on(&host), arguments, "").failed(1, &["failed", "no flour"]);
    assert!(shown.stdout.is_empty(), "{shown:?}");
    let job = host.client.submit("cli-fails", serde_json::from_str(input).unwrap()).await;
    run(on(&host), &format!("stream cli-fails {job}")).failed(1, &["failed", "no flour"]);
    // `status` succeeds, because its question was answered.
    let shown = run(on(&host), &format!("status cli-fails {job}")).succeeded();
    assert!(shown.stdout.contains("FAILED") && shown.stdout.contains("no flour"), "{shown:?}");
}

#[tokio::test]
async fn submit_says_why_a_job_waits() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-paused", json!({ "workersMax": 0 })).await;
    let arguments = [
        "submit",
        "cli-paused",
        "--wait",
        "--wait-timeout-ms",
        "4000",
        "--input",
        r#"{"op":"echo"}"#,
    ];
    let shown = run_args(on(&host), arguments, "");
    let reason = "the endpoint is paused: workersMax is 0";
    let while_waiting = format!("the job waits: {reason}");
    let at_last = format!("the job is still IN_QUEUE, because {reason}");
    let [while_waiting, at_last] = [while_waiting, at_last].map(|text| text.to_lowercase());
    shown.failed_with_any_code(&[&while_waiting, &at_last]);
}

#[tokio::test]
async fn status_and_stream_show_a_job() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-stream", json!({})).await;
    let input = json!({ "op": "stream", "count": 3, "delay_ms": 150 });
    let job = host.client.submit("cli-stream", input).await;
    let shown = run(on(&host), &format!("stream cli-stream {job}")).succeeded();
    assert_eq!(shown.stdout, "{\"i\":0}\n{\"i\":1}\n{\"i\":2}\n");
    let shown = run(on(&host), &format!("stream cli-stream {job} --from 1 --json")).succeeded();
    let chunks: Vec<serde_json::Value> =
        shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(chunks[0], json!({ "output": { "i": 1 }, "metrics": { "stream_index": 1 } }));
    assert_eq!(chunks.len(), 2);

    let document = run(on(&host), &format!("status cli-stream {job} --json")).succeeded().json();
    assert_eq!(document, host.client.status("cli-stream", &job).await.ok());
    let shown = run(on(&host), &format!("status cli-stream {job}")).succeeded();
    assert!(shown.stdout.contains(&job) && shown.stdout.contains("COMPLETED"), "{shown:?}");
}

#[tokio::test]
async fn cancel_retry_purge_and_health_do_what_they_say() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-calls", json!({ "workersMax": 1 })).await;
    let running = host.client.submit("cli-calls", json!({ "op": "sleep_forever" })).await;
    host.client.until("cli-calls", &running, "IN_PROGRESS").await;
    for _ in 0..2 {
        host.client.submit("cli-calls", json!({ "op": "echo" })).await;
    }
    assert_eq!(run(on(&host), "health").succeeded().stdout.trim(), "ready");
    let health = run(on(&host), "health cli-calls --json").succeeded().json();
    assert_eq!((&health["jobs"]["inQueue"], &health["jobs"]["inProgress"]), (&json!(2), &json!(1)));
    let shown = run(on(&host), "health cli-calls").succeeded();
    assert!(shown.stdout.contains("2 waiting, 1 running"), "{shown:?}");

    let purged = run(on(&host), "purge cli-calls --json").succeeded().json();
    assert_eq!(purged, json!({ "removed": 2, "status": "completed" }));
    let cancelled =
        run(on(&host), &format!("cancel cli-calls {running} --json")).succeeded().json();
    assert_eq!(cancelled, json!({ "id": running, "status": "CANCELLED" }));
    run(on(&host), &format!("retry cli-calls {running}")).failed(1, &["only failed or timed_out"]);

    let failed = host.client.finish("cli-calls", json!({ "op": "fail" })).await;
    let job = failed["id"].as_str().unwrap();
    let retried = run(on(&host), &format!("retry cli-calls {job} --json")).succeeded().json();
    assert_eq!(retried, json!({ "id": job, "status": "IN_QUEUE" }));
}

#[tokio::test]
async fn many_jobs_are_changed_by_one_command() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-actions", json!({ "workersMax": 0 })).await;
    for _ in 0..3 {
        host.client.submit("cli-actions", json!({ "op": "echo" })).await;
    }
    let of_it = |command: &str| format!("jobs {command} --endpoint cli-actions");
    let shown = run(on(&host), &of_it("cancel --wait --status IN_QUEUE")).succeeded();
    assert_eq!(shown.line(), "COMPLETED: 3 matched, 3 cancelled, 0 skipped");
    let document = run(on(&host), &of_it("retry --wait --json")).succeeded().json();
    assert_eq!((&document["state"], &document["skipped"]), (&json!("COMPLETED"), &json!(3)));
    let begun = run(on(&host), &of_it("delete")).succeeded();
    let action = begun.line();
    let shown = run(on(&host), &format!("jobs abort {action}")).succeeded();
    assert!(shown.stdout.is_empty() && shown.stderr.contains(action), "{shown:?}");
    let shown = run(on(&host), &format!("jobs action {action} --json")).succeeded().json();
    assert_eq!((&shown["id"], &shown["action"]), (&json!(action), &json!("delete")));
    let shown = run(on(&host), "jobs actions").succeeded();
    assert!(shown.stdout.starts_with("ID ") && shown.stdout.contains(action), "{shown:?}");
    run(on(&host), "jobs delete").failed(1, &["at least one condition", "--endpoint or --status"]);
    run(on(&host), "jobs delete --status DONE").failed(2, &["must be one of"]);
    for command in ["list --from", "list --json --to", "cancel --from", "delete --to"] {
        let option = command.split(' ').next_back().unwrap();
        let fault = format!("`{option}` must be a time");
        run(on(&host), &format!("jobs {command} x")).failed(1, &[&fault, "such as `2026-01-31`"]);
    }
    run(on(&host), "jobs list --from 2026-01-31 --to 9999-12-31").succeeded();
    run(on(&host), "jobs retry --tag a=b --tag a=c").failed(1, &["the tag `a` is given twice"]);
    run(on(&host), "jobs action nothing").failed(1, &["job action `nothing` not found"]);
}
