//! Log lines of handlers: live, and on disk.

use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::Instant;

use gristmill_tests::{Client, PATIENCE, TestHost, command, eventually, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

fn lines(document: &Value) -> Vec<&str> {
    document.as_array().unwrap().iter().map(|line| line["line"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn lines_are_read_and_followed() {
    let host = shared_host();
    let [loud, other] = ["logs-loud", "logs-other"];
    for name in [loud, other] {
        host.deploy(&guests::playground(), name, json!({ "workersMax": 1 })).await;
    }
    let say = async |endpoint: &str, text: &str| {
        let document = host.client.finish(endpoint, json!({ "op": "log", "message": text })).await;
        document["id"].as_str().unwrap().to_owned()
    };
    let first = say(loud, "one").await;
    say(other, "elsewhere").await;
    let second = say(loud, "two\u{1b}[2J").await;
    let path = format!("/v1/endpoints/{loud}/logs");
    let all = host.client.get(&path).await.ok();
    assert_eq!(lines(&all), ["one", "two[2J"], "{all}");
    assert_eq!((&all[1]["jobId"], &all[1]["level"]), (&json!(second), &json!("info")), "{all}");
    let of_first = host.client.get(&format!("{path}?job={first}")).await.ok();
    assert_eq!(lines(&of_first), ["one"]);
    assert_eq!(lines(&host.client.get(&format!("{path}?tail=1")).await.ok()), ["two[2J"]);

    // The newest existing line, then new ones.
    let request = host.client.request(Method::GET, &format!("{path}?tail=1"));
    let mut events = request.header("accept", "text/event-stream").send().await.unwrap();
    let mut seen = String::new();
    say(loud, "three").await;
    while !seen.contains("three") {
        let part = timeout(PATIENCE, events.chunk()).await.expect("lines come").unwrap();
        seen += &String::from_utf8_lossy(&part.expect("the stream goes on"));
    }
    assert!(seen.contains("two[2J") && !seen.contains("\"one\"") && !seen.contains("elsewhere"));
    // A client that reconnects continues after the last line that it has seen.
    let id = format!("id: {}\n", all[1]["number"]);
    assert!(seen.contains(&id), "{seen}");
    let request = host.client.request(Method::GET, &path);
    let request = request.header("last-event-id", all[1]["number"].to_string());
    assert_eq!(lines(&host.client.send(request).await.ok()), ["three"]);
    let request = host.client.request(Method::GET, &path).header("last-event-id", "");
    assert_eq!(lines(&host.client.send(request).await.ok()).last(), Some(&"three"));

    for query in ["tail=10001", "tail=-1", "job=no%20id"] {
        host.client.get(&format!("{path}?{query}")).await.refused(400);
    }
    host.client.get("/v1/endpoints/logs-none/logs").await.refused(404);
}

/// Comments come every 15 s, as long as there is nothing else to send.
#[tokio::test]
async fn a_follower_of_a_silent_endpoint_sees_no_lines_of_a_loud_one() {
    let host = shared_host();
    let [silent, loud] = ["logs-silent", "logs-noisy"];
    for name in [silent, loud] {
        host.deploy(&guests::playground(), name, json!({ "workersMax": 1 })).await;
    }
    let begun = Instant::now();
    let path = format!("/v1/endpoints/{silent}/logs");
    let request = host.client.request(Method::GET, &path);
    let mut events = request.header("accept", "text/event-stream").send().await.unwrap();
    // Lines of 64 bytes.
    host.client.finish(loud, json!({ "op": "stdout", "bytes": 64_000 })).await;
    let noise = host.client.get(&format!("/v1/endpoints/{loud}/logs?tail=10000")).await.ok();
    assert_eq!(lines(&noise).len(), 1_000);
    host.client.finish(silent, json!({ "op": "log", "message": "at last" })).await;
    let mut seen = String::new();
    while !seen.contains("at last") {
        let part = timeout(PATIENCE, events.chunk()).await.expect("lines come").unwrap();
        seen += &String::from_utf8_lossy(&part.expect("the stream goes on"));
    }
    let comments = seen.lines().filter(|line| line.starts_with(':')).count() as u64;
    assert!(comments <= begun.elapsed().as_secs() / 15, "{comments} comments: {seen}");
}

async fn say(client: &Client, endpoint: &str, text: &str) -> String {
    let document = client.finish(endpoint, json!({ "op": "log", "message": text })).await;
    document["id"].as_str().unwrap().to_owned()
}

/// Waits until the files of the endpoint's lines have this text, and returns their names.
async fn written(host: &TestHost, endpoint: &str, text: &str) -> Vec<PathBuf> {
    eventually(text, async || {
        let files = log_files(host, endpoint);
        let has_text =
            |file: &PathBuf| fs::read_to_string(file).is_ok_and(|all| all.contains(text));
        files.iter().any(has_text).then_some(files)
    })
    .await
}

fn log_files(host: &TestHost, endpoint: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(host.data_dir().join("logs")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_of = |path: &PathBuf| {
        path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{endpoint}."))
    };
    paths.filter(is_of).collect()
}

#[tokio::test]
async fn lines_outlive_a_kill_and_an_orderly_end() {
    let mut host = TestHost::start_with_clock::<&str>(&[]);
    let path = "/v1/endpoints/lasting/logs";
    host.deploy(&guests::playground(), "lasting", json!({})).await;
    let mut jobs = vec![say(&host.client(), "lasting", "one").await];
    let mut last_number = 0;
    for (text, next, is_killed) in [("one", "two", true), ("two", "three", false)] {
        written(&host, "lasting", text).await;
        if is_killed {
            host.kill9();
        } else {
            host.ask_to_end();
            assert!(host.wait(PATIENCE).success());
        }
        host.start_again();
        let client = host.client();
        let before = client.get(path).await.ok();
        assert_eq!(lines(&before).last(), Some(&text), "{before}");
        let seen = before.as_array().unwrap().last().unwrap()["number"].clone();
        // A reader who has seen the line continues after it. The clock stands still.
        let request = client.request(Method::GET, path).header("last-event-id", seen.to_string());
        let request = request.header("accept", "text/event-stream");
        let mut events = request.send().await.unwrap();
        jobs.push(say(&client, "lasting", next).await);
        let mut text = String::new();
        while !text.contains(next) {
            let part = timeout(PATIENCE, events.chunk()).await.expect("lines come").unwrap();
            text += &String::from_utf8_lossy(&part.expect("the stream goes on"));
        }
        assert_eq!(text.matches("data:").count(), 1, "{text}");
        // The first event has no data: it is the position of a reader who has received no line yet.
        let (position, _) = text.strip_prefix("id: ").unwrap().split_once("\n\n").unwrap();
        assert!(position.parse::<u64>().unwrap() >= seen.as_u64().unwrap(), "{text}");
        let number = text.rsplit("id: ").next().unwrap().lines().next().unwrap().parse().unwrap();
        assert!(number > last_number && number > seen.as_u64().unwrap(), "{number}");
        last_number = number;
    }
    let client = host.client();
    let texts = ["one", "two", "three"];
    assert_eq!(lines(&client.get(path).await.ok()), texts);
    for (job, text) in jobs.iter().zip(texts) {
        let of_job = client.get(&format!("{path}?job={job}")).await.ok();
        assert_eq!(lines(&of_job), [text]);
    }
    assert_eq!(lines(&client.get(&format!("{path}?tail=2")).await.ok()), ["two", "three"]);
}

/// The last lines before an orderly end are written by the end.
#[tokio::test]
async fn lines_of_jobs_that_end_during_a_drain_are_kept() {
    let mut host = TestHost::start();
    host.deploy(&guests::playground(), "drained", json!({})).await;
    say(&host.client(), "drained", "the last words").await;
    host.ask_to_end();
    assert!(host.wait(PATIENCE).success());
    let files = log_files(&host, "drained");
    assert!(fs::read_to_string(&files[0]).unwrap().contains("the last words"));
    assert_eq!(fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
    // A line that was being written, and a file of another program.
    let mut file = fs::File::options().append(true).open(&files[0]).unwrap();
    file.write_all(b"01234567 half a li").unwrap();
    fs::write(host.data_dir().join("logs/README"), "of the operator").unwrap();
    host.start_again();
    let client = host.client();
    say(&client, "drained", "more").await;
    written(&host, "drained", "more").await;
    let text = fs::read_to_string(&files[0]).unwrap();
    assert!(!text.contains("half a li") && text.lines().count() == 3, "{text}");
    let all = client.get("/v1/endpoints/drained/logs").await.ok();
    assert_eq!(lines(&all), ["the last words", "more"]);
    host.ask_to_end();
    assert!(host.wait(PATIENCE).success());
    let checked = command().arg("check").arg("--data-dir").arg(host.data_dir()).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test]
async fn the_lines_of_a_deleted_endpoint_are_deleted_also_after_a_crash() {
    let mut host = TestHost::start_with_clock::<&str>(&[]);
    for name in ["fleeting", "staying"] {
        host.deploy(&guests::playground(), name, json!({})).await;
        say(&host.client(), name, "of the first").await;
        written(&host, name, "of the first").await;
    }
    let delete = "/v1/endpoints/fleeting";
    let create = json!({ "id": "fleeting", "templateId": "fleeting" });
    let of_the_first = log_files(&host, "fleeting");
    assert_eq!(host.client().delete(delete).await.status, 204);
    eventually("the files are deleted", async || {
        log_files(&host, "fleeting").is_empty().then_some(())
    })
    .await;
    host.client().post("/v1/endpoints", &create).await.ok();
    // The files of the first come back, as if a crash had prevented their deletion; the clock has
    // not moved since the first was created.
    let now = host.client();
    say(&now, "fleeting", "of the second").await;
    written(&host, "fleeting", "of the second").await;
    let staying = fs::read(&log_files(&host, "staying")[0]).unwrap();
    host.kill9();
    for file in &of_the_first {
        fs::write(file, &staying).unwrap();
    }
    host.start_again();
    let seen = host.client().get("/v1/endpoints/fleeting/logs").await.ok();
    assert_eq!(lines(&seen), ["of the second"]);
    assert!(of_the_first.iter().all(|file| !file.exists()));
    let seen = host.client().get("/v1/endpoints/staying/logs").await.ok();
    assert_eq!(lines(&seen), ["of the first"]);
    // Without files at all.
    host.start_again_with(&["--manual-clock", "--max-endpoint-log-mib", "0"]);
    assert!(log_files(&host, "staying").is_empty());
    let client = host.client();
    say(&client, "staying", "in memory").await;
    assert_eq!(lines(&client.get("/v1/endpoints/staying/logs").await.ok()), ["in memory"]);
}

#[tokio::test]
async fn the_files_of_an_endpoint_are_bounded_and_its_newest_lines_are_found_by_job() {
    const JOBS: usize = 12;
    let mut host = TestHost::start_with(&["--max-endpoint-log-mib", "1"]);
    let endpoint = "bounded";
    host.deploy(&guests::playground(), endpoint, json!({ "workersMax": 1 })).await;
    let client = host.client();
    let path = "/v1/endpoints/bounded/logs";
    let mut jobs = vec![];
    for _ in 0..JOBS {
        // 256 KiB of lines of 64 bytes: more than 4,000.
        let job = client.finish(endpoint, json!({ "op": "stdout", "bytes": 2_000_000 })).await;
        jobs.push(job["id"].as_str().unwrap().to_owned());
        written(&host, endpoint, jobs.last().unwrap()).await;
    }
    let count = async |host: &TestHost, job: &str| {
        lines(&host.client().get(&format!("{path}?tail=10000&job={job}")).await.ok()).len()
    };
    let [first, last] = [&jobs[0], &jobs[JOBS - 1]];
    let of_last = count(&host, last).await;
    assert!(of_last > 1_000, "{of_last}");
    host.ask_to_end();
    assert!(host.wait(PATIENCE).success());
    let files = log_files(&host, endpoint);
    let bytes: u64 = files.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(bytes <= 1 << 20 && bytes > 700 << 10 && files.len() <= 8, "{bytes} {files:?}");
    host.start_again();
    assert_eq!(count(&host, last).await, of_last);
    assert_eq!(count(&host, first).await, 0);
    let all = client_lines(&host, path).await;
    assert!(all.len() > 2_000 && all.is_sorted_by(|a, b| a < b), "{}", all.len());
    // The same, event by event.
    let request = host.client().request(Method::GET, path).header("last-event-id", "1");
    let mut events = request.header("accept", "text/event-stream").send().await.unwrap();
    let mut seen = String::new();
    let end = format!("id: {}\n", all.last().unwrap());
    while !seen.contains(&end) {
        let part = timeout(PATIENCE, events.chunk()).await.expect("lines come").unwrap();
        seen += &String::from_utf8_lossy(&part.expect("the stream goes on"));
    }
    let ids = seen.lines().filter_map(|line| line.strip_prefix("id: "));
    assert_eq!(ids.map(|id| id.parse().unwrap()).collect::<Vec<u64>>(), all);
}

async fn client_lines(host: &TestHost, path: &str) -> Vec<u64> {
    let all = host.client().get(&format!("{path}?tail=10000")).await.ok();
    all.as_array().unwrap().iter().map(|line| line["number"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn jobs_run_and_lines_are_kept_in_memory_when_the_directory_cannot_be_written() {
    let host = TestHost::start_prepared::<&str>(&[], |data| {
        DirBuilder::new().mode(0o700).create(data).unwrap();
        fs::write(data.join("logs"), "a file in the place of the directory").unwrap();
    });
    host.deploy(&guests::playground(), "nowhere", json!({})).await;
    say(&host.client(), "nowhere", "here").await;
    let all = host.client().get("/v1/endpoints/nowhere/logs").await.ok();
    assert_eq!(lines(&all), ["here"]);
    eventually("a warning", async || {
        host.log().contains("log lines cannot be written to").then_some(())
    })
    .await;
    fs::remove_file(host.data_dir().join("logs")).unwrap();
    written(&host, "nowhere", "here").await;
}
