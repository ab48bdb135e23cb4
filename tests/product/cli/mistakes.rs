//! Invalid input: a clear message, and never a result.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gristmill_tests::{Reply, ScriptedServer, command, guests, shared_host};
use serde_json::json;

use crate::command::{on, run, run_args};

#[tokio::test]
async fn refusals_are_shown_in_the_hosts_words() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-mistakes", json!({})).await;
    let input = "--input {\"op\":\"echo\"}";
    for words in [
        format!("submit no-such-endpoint {input}"),
        "health no-such-endpoint".to_owned(),
        "purge no-such-endpoint".to_owned(),
        "status cli-mistakes 0192f3a0-0000-7000-8000-000000000000-0000".to_owned(),
        "stream cli-mistakes 0192f3a0-0000-7000-8000-000000000000-0000".to_owned(),
        "cancel cli-mistakes 0192f3a0-0000-7000-8000-000000000000-0000".to_owned(),
    ] {
        let shown = run(on(&host), &words).failed(1, &["not found"]);
        assert!(shown.stdout.is_empty(), "{shown:?}");
    }
    run(on(&host), "submit cli-mistakes --input [1]").failed(1, &["object"]);
}

#[tokio::test]
async fn input_that_is_no_json_or_cannot_be_read_is_refused() {
    let host = shared_host();
    host.deploy(&guests::playground(), "cli-input", json!({})).await;
    for (input, words) in [("{\"op\":", vec!["json"]), ("@not-there.json", vec!["not-there.json"])]
    {
        let shown = run_args(on(&host), ["submit", "cli-input", "--input", input], "");
        assert!(shown.stdout.is_empty(), "{shown:?}");
        shown.failed_with_any_code(&words);
    }
    assert_eq!(host.client.health("cli-input").await["jobs"]["inQueue"], 0);
}

#[test]
fn a_host_that_does_not_run_is_named() {
    let mut nobody = command();
    nobody.env("GRISTMILL_URL", "http://127.0.0.1:9").env("GRISTMILL_API_KEY", "gm_a_b");
    run(nobody, "health anything").failed(1, &["127.0.0.1:9"]);
}

#[test]
fn a_wrong_command_line_is_a_2_and_help_a_0() {
    run(command(), "").failed(2, &["usage"]);
    run(command(), "no-such-command").failed(2, &["no-such-command"]);
    run(command(), "submit").failed(2, &["--input"]);
    run(command(), "serve --listen nowhere").failed(2, &["nowhere"]);
    for words in ["--help", "keys create --help", "--version"] {
        let mut command = command();
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let shown = command.args(words.split(' ')).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&shown.stderr);
        assert_eq!(shown.status.code(), Some(1), "{words}: {said}");
        assert!(said.contains("cannot write the help"), "{words}: {said}");
    }
    let help = run(command(), "--help").succeeded();
    for name in ["serve", "deploy", "run", "submit", "status", "stream", "cancel", "retry", "purge"]
    {
        assert!(help.stdout.contains(name), "{name}: {help:?}");
    }
    assert_eq!(run(command(), "help").succeeded().stdout, help.stdout);
    assert!(run(command(), "help submit").succeeded().stdout.contains("--idempotency-key"));
    assert!(run(command(), "--version").succeeded().stdout.starts_with("gristmill "), "a version");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_always_has_another_page_is_not_followed_for_ever() {
    let pages = Arc::new(AtomicUsize::new(0));
    let (seen, page) = (pages.clone(), format!("[{}]", " ".repeat(1 << 20)));
    let endless = ScriptedServer::start(move |_, _| {
        let next = seen.fetch_add(1, Ordering::SeqCst);
        let link = format!("Link: </v1/keys?cursor={next}>; rel=\"next\"");
        Reply { headers: vec![link], ..Reply::ok(page.clone()) }
    })
    .await;
    let mut hostile = command();
    hostile.env("GRISTMILL_URL", format!("http://{}", endless.host()));
    hostile.env("GRISTMILL_API_KEY", "gm_x");
    run(hostile, "keys list").failed(1, &["larger than 64 mib"]);
    assert!(pages.load(Ordering::SeqCst) <= 65);

    // The same page again and again ends at once.
    let circle = ScriptedServer::start(|_, _| {
        let link = "Link: </v1/keys?cursor=same>; rel=\"next\"".to_owned();
        Reply { headers: vec![link], ..Reply::ok("[]") }
    })
    .await;
    let mut hostile = command();
    hostile.env("GRISTMILL_URL", format!("http://{}", circle.host()));
    hostile.env("GRISTMILL_API_KEY", "gm_x");
    run(hostile, "keys list --json").succeeded();
    assert_eq!(circle.heads().len(), 2);
}

#[test]
fn a_wrong_value_is_refused_with_those_that_are_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (file, missing) = (file.display(), dir.path().join("missing"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let [new, host] = ["new", "host"].map(|name| dir.path().join(name));
    let of_host = format!("serve --listen 127.0.0.1:0 --data-dir {}", host.display());
    for (words, code, said) in [
        (format!("serve --listen 127.0.0.1:0 --data-dir {file}"), 1, "is not a directory"),
        (
            "serve --listen 127.0.0.1:0 --data-dir /proc/new".to_owned(),
            1,
            "/proc/new` (--data-dir)",
        ),
        (format!("serve --data-dir {} --listen {taken}", new.display()), 1, "name another address"),
        (
            format!("{of_host} --database postgres://u:p@127.0.0.1:9/n"),
            1,
            "check that postgresql runs",
        ),
        (format!("check --data-dir {file}"), 1, "is not a directory"),
        (format!("check --data-dir {}", missing.display()), 1, "there is no directory"),
        ("health e --url 127.0.0.1:8080".to_owned(), 2, "such as http://127.0.0.1:8080"),
        ("submit e --input {} --ttl 1s".to_owned(), 2, "a whole number from 10000 to 604800000"),
        ("run /nonexist".to_owned(), 1, "cannot read /nonexist"),
        (
            format!("repair --data-dir {} --output {0}/a", missing.display()),
            1,
            "names that of a host",
        ),
        ("run --memory-mib 0".to_owned(), 2, "a whole number from 1 to 4096"),
        ("serve --max-running-jobs 0".to_owned(), 2, "a whole number from 1 to "),
        ("serve --listen 8080".to_owned(), 2, "such as 127.0.0.1:8080"),
        ("dev --listen 8080".to_owned(), 2, "such as 127.0.0.1:8080"),
        ("deploy a.wasm --name serverless".to_owned(), 2, "`network-volumes`"),
    ] {
        run(command(), &words).failed(code, &[said]);
    }
    assert!(!host.join("ballast").exists(), "the start has failed");
}
