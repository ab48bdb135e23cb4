//! Attacks through host calls, by the sample handler `hostile`. docs/internals/security.md
//! names these tests beside the attacks.

use std::time::{Duration, Instant};

use gristmill_core::limits::{
    HANDLER_CALLS_MAX, LOG_BYTES_MAX, LOG_LINE_BYTES_MAX, PROGRESS_BYTES_MAX,
};
use gristmill_core::runtime::{AttemptEnd, Runtime as _};
use gristmill_core::sharing::shares::Level;
use gristmill_tests::{LocalServer, guests};

use crate::bench::Bench;

async fn bench() -> Bench {
    Bench::open(&guests::hostile()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_hundred_clocks_for_ever_ends_at_the_deadline() {
    let bench = bench().await;
    let mut run = bench.run(r#"{"op":"park","count":100}"#);
    run.timeout = Duration::from_millis(200);
    let started = Instant::now();
    let report = run.perform().await;
    assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{:?}", report.end);
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(bench.running(), 0);
}

#[tokio::test]
async fn handles_run_out() {
    let bench = bench().await;
    assert_eq!(
        bench.run(r#"{"op":"handles","count":500}"#).perform().await.output(),
        r#"{"done":500}"#
    );
    let error = bench.run(r#"{"op":"handles","count":1025}"#).perform().await.error();
    assert_eq!(error, "handler holds more than 1024 handles");
}

#[tokio::test]
async fn a_poll_list_is_bounded_like_handles() {
    let bench = bench().await;
    let done = bench.run(r#"{"op":"poll","count":1000}"#).perform().await.output();
    assert_eq!(done, r#"{"done":1000}"#);
    let error = bench.run(r#"{"op":"poll","count":1024}"#).perform().await.error();
    assert_eq!(error, "handler holds more than 1024 handles");
    let error = bench.run(r#"{"op":"poll","count":8000000}"#).perform().await.error();
    assert!(error.starts_with("handler passed more than 24 MiB to the host at once"), "{error}");
}

#[tokio::test]
async fn random_bytes_come_in_bounded_portions() {
    let bench = bench().await;
    let done = bench.run(r#"{"op":"random","bytes":65536}"#).perform().await.output();
    assert_eq!(done, r#"{"done":65536}"#);
    for bytes in ["65537", "4294967295"] {
        let input = format!(r#"{{"op":"random","bytes":{bytes}}}"#);
        let error = bench.run(&input).perform().await.error();
        assert!(error.contains("exceeds limit 65536"), "{error}");
    }
}

#[tokio::test]
async fn log_floods_are_cut_and_counted() {
    let bench = bench().await;
    for (count, bytes) in [(200_000, 20), (3, 20 << 20)] {
        let run = bench.run(&format!(r#"{{"op":"log","count":{count},"bytes":{bytes}}}"#));
        let report = run.perform().await;
        assert_eq!(report.output(), format!(r#"{{"done":{count}}}"#));
        let lines = run.sink.lines();
        let kept: usize = lines.iter().map(|(_, line)| line.len()).sum();
        assert!(kept <= LOG_BYTES_MAX, "{kept}");
        assert!(lines.iter().all(|(_, line)| line.len() <= LOG_LINE_BYTES_MAX));
        // One more line says that lines are dropped.
        let notes = u64::from(report.usage.log_lines_dropped > 0);
        assert_eq!(lines.len() as u64 - notes + report.usage.log_lines_dropped, count);
    }
}

#[tokio::test]
async fn an_attempt_submits_a_thousand_jobs_at_most() {
    let bench = bench().await;
    for (count, done) in [(999, 999), (2_000, HANDLER_CALLS_MAX as usize)] {
        let run = bench.run(&format!(r#"{{"op":"flood","count":{count}}}"#));
        assert_eq!(run.perform().await.output(), format!(r#"{{"done":{done}}}"#));
        assert_eq!(run.sink.calls().len(), done);
    }
}

#[tokio::test]
async fn inputs_of_submitted_jobs_are_bounded_like_those_of_clients() {
    let bench = bench().await;
    let run = bench.run(r#"{"op":"flood","count":2,"bytes":5000000}"#);
    assert_eq!(run.perform().await.output(), r#"{"done":2}"#);
    let run = bench.run(r#"{"op":"flood","count":2,"bytes":11000000}"#);
    assert_eq!(run.perform().await.output(), r#"{"done":0}"#);
    assert!(run.sink.calls().is_empty());
}

#[tokio::test]
async fn writing_nothing_a_million_times_leaves_nothing() {
    let bench = bench().await;
    let run = bench.run(r#"{"op":"empty_writes","count":1000000}"#);
    assert_eq!(run.perform().await.output(), r#"{"done":1000000}"#);
    assert_eq!(run.sink.lines(), []);
}

#[tokio::test]
async fn progress_that_is_too_large_is_dropped() {
    let bench = bench().await;
    let run =
        bench.run(&format!(r#"{{"op":"progress","count":1000,"bytes":{PROGRESS_BYTES_MAX}}}"#));
    run.perform().await.output();
    assert!(run.sink.lines().iter().all(|(_, line)| line.starts_with("progress dropped: it has")));
    assert_eq!(run.sink.progress_values(), 0);
    let run = bench.run(r#"{"op":"progress","count":1000,"bytes":100}"#);
    run.perform().await.output();
    assert_eq!(run.sink.progress_values(), 1_000);
}

/// The host keeps the parts of an unsent request. Each is bounded, and so is their number.
#[tokio::test]
async fn requests_that_are_never_sent_keep_little() {
    let bench = bench().await;
    let heads =
        |count: u32, bytes: u32| format!(r#"{{"op":"heads","count":{count},"bytes":{bytes}}}"#);
    assert_eq!(bench.run(&heads(10, 1_000)).perform().await.output(), r#"{"done":20}"#);
    assert_eq!(bench.run(&heads(10, 40_000)).perform().await.output(), r#"{"done":0}"#);
    let error = bench.run(&heads(1_100, 1_000)).perform().await.error();
    assert_eq!(error, "handler holds more than 1024 handles");

    let fields =
        |count: u32, bytes: u32| format!(r#"{{"op":"fields","count":{count},"bytes":{bytes}}}"#);
    assert_eq!(bench.run(&fields(10, 30_000)).perform().await.output(), r#"{"done":10}"#);
    let error = bench.run(&fields(10, 40_000)).perform().await.error();
    assert_eq!(error, "handler failed in a host call: total size of fields exceeds limit");
    let error = bench.run(&fields(1_100, 30_000)).perform().await.error();
    assert_eq!(error, "handler holds more than 1024 handles");

    // Two pieces of 64 KiB wait in each unsent body.
    let output = bench.run(r#"{"op":"bodies","count":100}"#).perform().await.output();
    assert_eq!(output, format!(r#"{{"done":{}}}"#, 100 * (128 << 10)));
}

/// What earlier attempts were charged is reserved for the next one.
#[tokio::test]
async fn requests_that_are_never_sent_are_charged() {
    let bench = bench().await;
    let charged = async |input: &str| {
        let run = bench.run(input);
        run.perform().await.output();
        let _reserved = bench.runtime().try_reserve(&run.deployment(), Level::CLIENT).unwrap();
        bench.runtime().memory().permits.taken
    };
    let none = charged(r#"{"op":"heads","count":0,"bytes":1}"#).await;
    let fields = charged(r#"{"op":"fields","count":100,"bytes":30000}"#).await;
    let requests = charged(r#"{"op":"heads","count":100,"bytes":30000}"#).await;
    assert!(fields > none + 100 * 32_000, "{none} {fields}");
    assert!(requests > none + 100 * 5 * 32_000, "{none} {requests}");
}

#[tokio::test]
async fn huge_headers_are_refused() {
    let bench = bench().await;
    let server = LocalServer::start().await;
    let headers = |count: u32, bytes: u32| {
        let url = server.url("/");
        let mut run = bench
            .run(&format!(r#"{{"op":"headers","url":"{url}","count":{count},"bytes":{bytes}}}"#));
        run.allow(&server.host());
        run
    };
    assert_eq!(headers(10, 100).perform().await.output(), r#"{"done":200}"#);
    for (count, bytes) in [(40_000, 1), (1, 40_000), (100, 100_000)] {
        let error = headers(count, bytes).perform().await.error();
        assert!(error.contains("method, URL and headers have"), "{count} {bytes}: {error}");
    }
}

#[tokio::test]
async fn there_is_nothing_outside() {
    let bench = bench().await;
    for op in ["sockets", "files", "snoop"] {
        let output = bench.run(&format!(r#"{{"op":"{op}"}}"#)).perform().await.output();
        assert_eq!(output, r#"{"seen":[]}"#, "{op}");
    }
}
