//! The sandbox alone, with real handlers: the effect of each limit, the errors of handlers, and the
//! time until an endless handler is stopped.

#![cfg(test)]

mod bench;
mod files;
mod hostile;
mod http_requests;
mod locks;
mod transfers;

use std::time::{Duration, Instant};

use gristmill_core::deploy::endpoint::Metering;
use gristmill_core::job::record::Chunk;
use gristmill_core::limits::{CHUNK_BYTES_MAX, LOG_BYTES_MAX};
use gristmill_core::runtime::{AttemptEnd, FailureReason, LogLevel};
use gristmill_tests::{LocalServer, guests};

use bench::Bench;

/// The longest time until a handler is stopped.
const GONE_WITHIN: Duration = Duration::from_millis(100);

#[tokio::test]
async fn outputs_and_usage_come_back() {
    let bench = Bench::open(&guests::playground()).await;
    let run = bench.run(r#"{"op":"echo","value":{"z":9007199254740993}}"#);
    let report = run.perform().await;
    assert_eq!(report.output(), r#"{"echo":{"z":9007199254740993}}"#);
    let usage = report.usage;
    assert!(usage.fuel.unwrap() > 0 && usage.memory_bytes_peak >= 1 << 20, "{usage:?}");
    assert!(usage.cpu_us <= usage.instantiate_us + usage.run_us, "{usage:?}");
}

#[tokio::test]
async fn failed_handlers_are_reported_in_a_sentence() {
    let bench = Bench::open(&guests::playground()).await;
    let cases = [
        (r#"{"op":"trap"}"#, FailureReason::Trap, "handler aborted (`unreachable` executed)"),
        (
            r#"{"op":"recurse"}"#,
            FailureReason::Trap,
            "stack overflow: handler used more than 1 MiB of stack",
        ),
        (
            r#"{"op":"exit","code":3}"#,
            FailureReason::Trap,
            "handler exited with a failure before returning a result",
        ),
        (
            r#"{"op":"exit","code":0}"#,
            FailureReason::Trap,
            "handler exited with success before returning a result",
        ),
        (r#"{"op":"fail","message":"no flour"}"#, FailureReason::Handler, "no flour"),
        (
            r#"{"op":"dance"}"#,
            FailureReason::InvalidInput,
            "invalid input: op: unknown variant `dance`",
        ),
        (
            r#"{"op":"output","bytes":22000000}"#,
            FailureReason::InvalidOutput,
            "output is 22000002 bytes, limit: 20971520 bytes",
        ),
        (
            r#"{"op":"output","bytes":26000000}"#,
            FailureReason::Host,
            "handler passed more than 24 MiB to the host",
        ),
    ];
    for (input, reason, expected) in cases {
        let report = bench.run(input).perform().await;
        assert_eq!(report.reason(), reason, "{input}");
        let error = report.error();
        println!("{input}: {error}");
        assert!(error.starts_with(expected) && !error.contains('\n'), "{input}: {error}");
    }
}

#[tokio::test]
async fn memory_ends_at_the_limit() {
    let bench = Bench::open(&guests::playground()).await;
    let mut run = bench.run(r#"{"op":"alloc","mib":80}"#);
    run.endpoint.settings.memory_mib = 64;
    let report = run.perform().await;
    let error = report.error();
    println!("{error}");
    assert!(error.ends_with("(memory limit of 64 MiB exceeded)"), "{error}");
    assert_eq!(report.reason(), FailureReason::MemoryLimit);
    let peak = report.usage.memory_bytes_peak;
    assert!((32 << 20..=64 << 20).contains(&peak), "{peak}");
}

/// The delay of the end of a run that is stopped, or times out, after 200 ms.
async fn lateness(bench: &Bench, input: &str, metering: Metering, by_deadline: bool) -> Duration {
    let after = Duration::from_millis(200);
    let mut run = bench.run(input);
    run.endpoint.settings.metering = metering;
    if by_deadline {
        run.timeout = after;
    }
    let stop = run.stop.clone();
    tokio::spawn(async move {
        // The subject: the time of the stop.
        tokio::time::sleep(after).await;
        if !by_deadline {
            stop.cancel();
        }
    });
    let started = Instant::now();
    let report = run.perform().await;
    let late = started.elapsed().saturating_sub(after);
    match (by_deadline, &report.end) {
        (true, AttemptEnd::DeadlineReached) | (false, AttemptEnd::Stopped) => late,
        (_, end) => panic!("{input}: {end:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_ignore_a_stop_are_ended_soon() {
    let bench = Bench::open(&guests::playground()).await;
    for metering in [Metering::Fuel, Metering::Epoch] {
        // The plain engine's file is compiled at its first use.
        let mut first = bench.run(r#"{"op":"echo"}"#);
        first.endpoint.settings.metering = metering;
        first.perform().await.output();
        for input in [r#"{"op":"spin"}"#, r#"{"op":"sleep_forever"}"#] {
            for by_deadline in [false, true] {
                let late = lateness(&bench, input, metering, by_deadline).await;
                let by = if by_deadline { "its deadline" } else { "a stop" };
                let is_kept = if late <= GONE_WITHIN { "" } else { " (LATE)" };
                println!("{input}, {}: gone {late:?} after {by}{is_kept}", metering.as_str());
                // The test's machine may be busy; the test only excludes a hang.
                assert!(late < Duration::from_secs(20), "{input}: {late:?}");
            }
        }
    }
    assert_eq!(bench.running(), 0);
}

#[tokio::test]
async fn every_job_has_a_fresh_memory() {
    let bench = Bench::open(&guests::playground()).await;
    for value in 0..3 {
        let input = format!(r#"{{"op":"remember","value":{value}}}"#);
        let output = bench.run(&input).perform().await.output();
        assert_eq!(output, r#"{"remembered":null}"#);
    }
}

#[tokio::test]
async fn a_flood_on_standard_output_is_capped_and_counted() {
    let bench = Bench::open(&guests::playground()).await;
    let run = bench.run(r#"{"op":"stdout","bytes":4194304}"#);
    let report = run.perform().await;
    assert_eq!(report.output(), r#"{"printed":4194304}"#);
    let lines = run.sink.lines();
    let kept: usize = lines.iter().map(|(_, line)| line.len() + 1).sum();
    let (note, lines) = lines.split_last().unwrap();
    assert!(note.0 == LogLevel::Warn && note.1.contains("is full (256 KiB)"), "{note:?}");
    assert!(kept <= LOG_BYTES_MAX && lines.iter().all(|(level, _)| *level == LogLevel::Info));
    assert_eq!(report.usage.log_lines_dropped + lines.len() as u64, 4_194_304 / 64);
}

#[tokio::test]
async fn chunks_come_in_order_and_large_ones_in_parts() {
    let bench = Bench::open(&guests::playground()).await;
    let run = bench.run(r#"{"op":"stream","count":100}"#);
    assert_eq!(run.perform().await.usage.chunks, 100);
    let chunks = run.sink.chunks();
    for (i, chunk) in (0..).zip(&chunks) {
        assert_eq!(chunk.output.as_str(), format!(r#"{{"i":{i}}}"#));
    }
    let run = bench.run(r#"{"op":"chunk","bytes":3000000}"#);
    run.perform().await.output();
    let chunks = run.sink.chunks();
    let texts: Vec<String> = chunks.iter().map(|chunk| chunk.output.read().unwrap()).collect();
    assert_eq!(texts.concat().len(), 3_000_000);
    let is_whole = |chunk: &Chunk| chunk.shown_part().is_none();
    assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES_MAX && is_whole(chunk)));
}

#[tokio::test]
async fn the_environment_and_the_network_are_the_endpoints() {
    let bench = Bench::open(&guests::playground()).await;
    let mut run = bench.run(r#"{"op":"env","name":"GRAIN"}"#);
    run.endpoint.settings.env.insert("GRAIN".into(), "rye".into());
    assert_eq!(run.perform().await.output(), r#"{"env":"rye"}"#);
    assert_eq!(
        bench.run(r#"{"op":"env","name":"PATH"}"#).perform().await.output(),
        r#"{"env":null}"#
    );

    let server = LocalServer::start().await;
    let fetch = format!(r#"{{"op":"fetch","url":"{}"}}"#, server.url("/redirect"));
    let mut run = bench.run(&fetch);
    let error = run.perform().await.error();
    assert!(error.contains("does not allow requests to"), "{error}");
    run.allow(&server.host());
    let output = run.perform().await.output();
    assert!(output.starts_with(r#"{"status":302"#), "{output}");
}

#[tokio::test]
async fn all_samples_are_accepted() {
    let samples = [
        guests::echo(),
        guests::playground(),
        guests::token_stream(),
        guests::word_count(),
        guests::thumbnail(),
        guests::fetch(),
        guests::hostile(),
    ];
    for sample in samples {
        let component = Bench::open(&sample).await.component;
        println!("{}: compiled in {} ms", sample.display(), component.compile_ms);
        assert!(component.exports.contains(&"gristmill:handler/run@0.1.0".to_owned()));
    }
}
