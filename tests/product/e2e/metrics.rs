//! `/metrics` counts what happened, for each endpoint, and probes need no key.

use std::collections::BTreeMap;
use std::time::Duration;

use gristmill_tests::{Client, Receiver, TestHost, eventually, guests};
use reqwest::Method;
use serde_json::json;
use tokio::net::TcpStream;

/// The samples of a text in the OpenMetrics format, by name and labels.
struct Samples(BTreeMap<String, f64>);

impl Samples {
    fn of(text: &str) -> Self {
        assert!(text.ends_with("# EOF\n"), "{text}");
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        });
        let all: Vec<(String, f64)> = samples.collect();
        let samples: BTreeMap<_, _> = all.iter().cloned().collect();
        assert_eq!(samples.len(), all.len(), "each series has one sample: {text}");
        Self(samples)
    }

    async fn read(client: &Client) -> Self {
        let answer = client.get("/metrics").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        Self::of(&answer.text)
    }

    fn get(&self, name: &str) -> f64 {
        *self.0.get(name).unwrap_or_else(|| panic!("no {name}: {:?}", self.0))
    }
}

/// A job expires while it waits and while it runs. A ttl that ends after the job, a purge and the
/// deletion of an endpoint are no expiry.
#[tokio::test]
async fn jobs_that_expire_are_counted() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "expiring", json!({ "workersMax": 1 })).await;
    let expired = async || {
        let name = format!(r#"gristmill_jobs_expired_total{{endpoint="{endpoint}"}}"#);
        Samples::read(&client).await.get(&name)
    };
    let brief = json!({ "ttl": 20_000, "executionTimeout": 600_000 });
    let submit =
        async |op: &str| client.submit_with(&endpoint, json!({ "op": op }), brief.clone()).await;
    let is_deleted = async |job: &str| {
        eventually("the end of the job", async || {
            (client.status(&endpoint, job).await.status == 404).then_some(())
        })
        .await;
    };
    let done = submit("echo").await;
    client.until(&endpoint, &done, "COMPLETED").await;
    let running = submit("sleep_forever").await;
    client.until(&endpoint, &running, "IN_PROGRESS").await;
    let waiting = submit("echo").await;
    assert_eq!(expired().await, 0.0);
    host.advance(20_000);
    for job in [&done, &running, &waiting] {
        is_deleted(job).await;
    }
    eventually("both counts", async || (expired().await == 2.0).then_some(())).await;
    client.patch("/v1/endpoints/expiring", &json!({ "workersMax": 0 })).await.ok();
    submit("echo").await;
    client.purge(&endpoint).await.ok();
    let last = submit("echo").await;
    host.advance(20_000);
    is_deleted(&last).await;
    eventually("its count", async || (expired().await == 3.0).then_some(())).await;
}

#[tokio::test]
async fn each_endpoint_has_counters_gauges_and_histograms() {
    let host = TestHost::start();
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "counted", json!({ "workersMax": 1 })).await;
    let idle = host.deploy(&guests::playground(), "idle", json!({ "workersMax": 0 })).await;
    let before = Samples::read(&client).await;
    for end in [
        r#"status="completed""#,
        r#"status="timed_out""#,
        r#"status="failed",reason="handler""#,
        r#"status="failed",reason="host""#,
    ] {
        let name = format!(r#"gristmill_jobs_finished_total{{endpoint="{endpoint}",{end}}}"#);
        assert_eq!(before.get(&name), 0.0);
    }

    for i in 0..3 {
        client.run_sync(&endpoint, "", json!({ "op": "echo", "value": i })).await.ok();
    }
    client.finish(&endpoint, json!({ "op": "stream", "count": 7 })).await;
    client.finish(&endpoint, json!({ "op": "fail", "message": "no" })).await;
    client.finish(&endpoint, json!({ "op": "trap" })).await;
    let policy = json!({ "executionTimeout": 5_000 });
    let slow = client.submit_with(&endpoint, json!({ "op": "sleep", "ms": 60_000 }), policy).await;
    let behind = client.submit(&endpoint, json!({ "op": "sleep", "ms": 0 })).await;
    client.submit(&idle, json!({})).await;
    client.until(&endpoint, &slow, "IN_PROGRESS").await;
    client.workers_running(&endpoint, 1).await;
    let running = Samples::read(&client).await;
    let gauge =
        |name: &str, of: &str| running.get(&format!(r#"gristmill_{name}{{endpoint="{of}"}}"#));
    assert_eq!((gauge("jobs_running", &endpoint), gauge("jobs_waiting", &endpoint)), (1.0, 1.0));
    assert_eq!((gauge("jobs_running", &idle), gauge("jobs_waiting", &idle)), (0.0, 1.0));
    let state = format!(r#"gristmill_workers{{endpoint="{endpoint}",state="running"}}"#);
    assert_eq!(running.get(&state), 1.0);
    eventually("the waiting job to grow old", async || {
        let now = Samples::read(&client).await;
        let age = |of: &str| {
            now.get(&format!(r#"gristmill_oldest_waiting_job_age_seconds{{endpoint="{of}"}}"#))
        };
        (age(&idle) >= 1.0).then_some(())
    })
    .await;

    client.until(&endpoint, &slow, "TIMED_OUT").await;
    client.until(&endpoint, &behind, "COMPLETED").await;
    let after = Samples::read(&client).await;
    let count = |name: &str| after.get(&format!("gristmill_{}", name.replace('@', &endpoint)));
    assert_eq!(count(r#"jobs_submitted_total{endpoint="@",operation="runsync"}"#), 3.0);
    assert_eq!(count(r#"jobs_submitted_total{endpoint="@",operation="run"}"#), 5.0);
    assert_eq!(count(r#"jobs_finished_total{endpoint="@",status="completed"}"#), 5.0);
    let failed = |reason: &str| {
        count(&format!(r#"jobs_finished_total{{endpoint="@",status="failed",reason="{reason}"}}"#))
    };
    assert_eq!((failed("handler"), failed("trap"), failed("host")), (1.0, 1.0, 0.0));
    assert_eq!(count(r#"jobs_finished_total{endpoint="@",status="timed_out"}"#), 1.0);
    assert_eq!(count(r#"stream_chunks_total{endpoint="@"}"#), 7.0);
    for histogram in ["job_wait_seconds", "job_start_seconds", "job_run_seconds", "job_cpu_seconds"]
    {
        assert_eq!(count(&format!(r#"{histogram}_count{{endpoint="@"}}"#)), 8.0);
        let bucket = |le| count(&format!(r#"{histogram}_bucket{{le="{le}",endpoint="@"}}"#));
        assert_eq!(bucket("+Inf"), 8.0, "{histogram}");
    }
    let ran = |le| count(&format!(r#"job_run_seconds_bucket{{le="{le}",endpoint="@"}}"#));
    assert_eq!((ran("2.5"), ran("10.0")), (7.0, 8.0), "one job ran for five seconds");
    // The start of its instance is a part of its five seconds.
    assert!(count(r#"job_run_seconds_sum{endpoint="@"}"#) >= 4.0);
    assert!(count(r#"job_wait_seconds_sum{endpoint="@"}"#) >= 4.0, "one job waited for it");
}

#[tokio::test]
async fn answers_commits_and_webhooks_are_counted() {
    let receiver = Receiver::start(&["500 No"]).await;
    let host = TestHost::start_with(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::echo(), "observed", settings).await;
    let body = json!({ "input": {}, "webhook": receiver.url("/") });
    client.post(&client.path(&endpoint, "run"), &body).await.ok();
    client.get(&client.path(&endpoint, "status/unknown")).await.refused(404);
    client.get("/nothing").await.refused(404);
    eventually("the webhook to be counted as failed", async || {
        let now = Samples::read(&client).await;
        let attempts = |result: &str| {
            let labels = format!(r#"endpoint="{endpoint}",result="{result}""#);
            now.get(&format!("gristmill_webhook_attempts_total{{{labels}}}"))
        };
        assert_eq!((attempts("delivered"), attempts("given_up")), (0.0, 0.0));
        (attempts("failed") == 1.0 && now.get("gristmill_webhooks_waiting") == 1.0).then_some(())
    })
    .await;
    let backed_up_at =
        async || Samples::read(&client).await.get("gristmill_last_backup_timestamp_seconds");
    assert_eq!(backed_up_at().await, 0.0);
    assert_eq!(client.get("/v1/backup").await.status, 200);
    eventually("the backup to be counted", async || {
        (backed_up_at().await > 1_700_000_000.0).then_some(())
    })
    .await;
    let now = Samples::read(&client).await;
    let answers = |route: &str, status: &str| {
        let labels = format!(r#"route="{route}",status="{status}""#);
        now.get(&format!("gristmill_http_answers_total{{{labels}}}"))
    };
    assert_eq!((answers("run", "2xx"), answers("run", "4xx")), (1.0, 0.0));
    assert_eq!((answers("status", "2xx"), answers("status", "4xx")), (0.0, 1.0));
    assert_eq!(answers("other", "4xx"), 1.0);
    assert!(answers("endpoints", "2xx") >= 1.0);
    assert_eq!(now.get(r#"gristmill_http_answer_seconds_count{route="run"}"#), 1.0);
    let commits = now.get("gristmill_store_commit_seconds_count");
    assert!(commits >= 1.0);
    assert!(now.get("gristmill_store_commit_seconds_sum") > 0.0);
    assert_eq!(now.get("gristmill_jobs_archived"), 0.0);
}

/// Whether an endpoint's counter with these further labels has this value.
fn counts(samples: &Samples, endpoint: &str, name: &str, labels: &str, expected: f64) {
    let series = format!(r#"gristmill_{name}_total{{endpoint="{endpoint}"{labels}}}"#);
    assert_eq!(samples.get(&series), expected, "{series}");
}

#[tokio::test]
async fn failures_are_counted_by_their_reason() {
    let host = TestHost::start();
    let client = host.client();
    let settings = json!({ "memoryMib": 128, "maxFuel": 1_000_000_000 });
    let endpoint = host.deploy(&guests::playground(), "failing", settings).await;
    for (reason, input) in [
        ("invalid_input", json!({ "op": "sha256", "rounds": "many" })),
        ("memory_limit", json!({ "op": "alloc", "mib": 160 })),
        ("fuel_limit", json!({ "op": "spin" })),
        ("invalid_output", json!({ "op": "output", "bytes": 21_000_000 })),
        ("trap", json!({ "op": "trap" })),
        ("handler", json!({ "op": "fail" })),
    ] {
        let labels = format!(r#",status="failed",reason="{reason}""#);
        counts(&Samples::read(&client).await, &endpoint, "jobs_finished", &labels, 0.0);
        let failed = client.finish(&endpoint, input).await;
        assert_eq!(failed["status"], "FAILED", "{failed}");
        let now = Samples::read(&client).await;
        counts(&now, &endpoint, "jobs_finished", &labels, 1.0);
    }
    let now = Samples::read(&client).await;
    counts(&now, &endpoint, "jobs_finished", r#",status="completed""#, 0.0);
    counts(&now, &endpoint, "jobs_finished", r#",status="failed",reason="host""#, 0.0);
}

#[tokio::test]
async fn retries_cancellations_and_dropped_log_lines_are_counted() {
    let host = TestHost::start();
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "changing", json!({ "workersMax": 1 })).await;
    let job = client.submit(&endpoint, json!({ "op": "fail" })).await;
    client.until(&endpoint, &job, "FAILED").await;
    client.retry(&endpoint, &job).await.ok();
    eventually("the second attempt", async || {
        let now = Samples::read(&client).await;
        let failed = format!(
            r#"gristmill_jobs_finished_total{{endpoint="{endpoint}",status="failed",reason="handler"}}"#
        );
        (now.get(&failed) == 2.0).then_some(())
    })
    .await;
    // 8,192 lines of 64 bytes; an attempt may have 256 KiB.
    client.finish(&endpoint, json!({ "op": "stdout", "bytes": 512 << 10 })).await;
    client.patch(&format!("/v1/endpoints/{endpoint}"), &json!({ "workersMax": 0 })).await.ok();
    let first = client.submit(&endpoint, json!({})).await;
    client.cancel(&endpoint, &first).await.ok();
    for _ in 0..2 {
        client.submit(&endpoint, json!({})).await;
    }
    client.purge(&endpoint).await.ok();
    let now = Samples::read(&client).await;
    counts(&now, &endpoint, "job_retries", "", 1.0);
    counts(&now, &endpoint, "jobs_cancelled", "", 3.0);
    let dropped = format!(r#"gristmill_log_lines_dropped_total{{endpoint="{endpoint}"}}"#);
    let dropped = now.get(&dropped);
    assert!((4_096.0..4_200.0).contains(&dropped), "{dropped}");
}

#[tokio::test]
async fn requests_of_handlers_and_webhooks_are_counted_by_their_results() {
    // The second answer is no HTTP.
    let receiver = Receiver::start(&["204 No Content", "no status"]).await;
    // The system accepts connections here, and no program answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    let hook = Receiver::start(&["200 OK", "500 No"]).await;
    let host = TestHost::start_with(&["--webhook-allow", &hook.host()]);
    let client = host.client();
    let settings = json!({ "allowedHosts": [receiver.host(), silent, "127.0.0.1:1"] });
    let endpoint = host.deploy(&guests::fetch(), "asking", settings).await;
    for url in [
        receiver.url("/answered"),
        receiver.url("/broken"),
        "http://127.0.0.1:1/nobody".to_owned(),
        "http://elsewhere.example/denied".to_owned(),
    ] {
        client.finish(&endpoint, json!({ "url": url })).await;
    }
    let late = json!({ "url": format!("http://{silent}/late"), "timeout_ms": 100 });
    client.finish(&endpoint, late).await;
    for _ in 0..2 {
        let body = json!({ "input": { "url": 1 }, "webhook": hook.url("/") });
        client.post(&client.path(&endpoint, "run"), &body).await.ok();
    }
    eventually("the results of both webhooks", async || {
        let now = Samples::read(&client).await;
        let attempts = |result: &str| {
            let labels = format!(r#"endpoint="{endpoint}",result="{result}""#);
            now.get(&format!("gristmill_webhook_attempts_total{{{labels}}}"))
        };
        (attempts("delivered") == 1.0 && attempts("failed") >= 1.0).then_some(())
    })
    .await;
    let now = Samples::read(&client).await;
    for result in ["answered", "failed", "not_connected", "denied", "timed_out"] {
        let labels = format!(r#",result="{result}""#);
        counts(&now, &endpoint, "outgoing_requests", &labels, 1.0);
    }
    let requests = format!(r#"gristmill_outgoing_request_seconds_count{{endpoint="{endpoint}"}}"#);
    assert_eq!(now.get(&requests), 5.0);
}

#[tokio::test]
async fn histograms_reach_from_a_quarter_of_a_millisecond_to_an_hour() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "patient", json!({ "workersMax": 0 })).await;
    let later = json!({ "ttl": 86_400_000 });
    // The second one waits for an hour, which belongs to the bucket, and the first one for longer.
    let first = client.submit_with(&endpoint, json!({}), later.clone()).await;
    host.advance(1);
    let second = client.submit_with(&endpoint, json!({}), later.clone()).await;
    host.advance(3_600_000);
    let third = client.submit_with(&endpoint, json!({}), later).await;
    client.patch(&format!("/v1/endpoints/{endpoint}"), &json!({ "workersMax": 1 })).await.ok();
    for job in [&first, &second, &third] {
        client.until(&endpoint, job, "COMPLETED").await;
    }
    let now = Samples::read(&client).await;
    let waited = |le: &str| {
        let labels = format!(r#"le="{le}",endpoint="{endpoint}""#);
        now.get(&format!("gristmill_job_wait_seconds_bucket{{{labels}}}"))
    };
    assert_eq!((waited("0.00025"), waited("1800.0")), (1.0, 1.0));
    assert_eq!((waited("3600.0"), waited("+Inf")), (2.0, 3.0));
    let sum = format!(r#"gristmill_job_wait_seconds_sum{{endpoint="{endpoint}"}}"#);
    assert_eq!(now.get(&sum), 7_200.001);
}

#[tokio::test]
async fn compiles_the_journal_and_the_disk_are_measured() {
    let host = TestHost::start();
    let client = host.client();
    let compiles = "gristmill_component_compile_seconds_count";
    assert_eq!(Samples::read(&client).await.get(compiles), 0.0);
    let endpoint = host.deploy(&guests::echo(), "measured", json!({ "workersMax": 0 })).await;
    let now = Samples::read(&client).await;
    assert!(now.get(compiles) >= 1.0);
    assert!(now.get("gristmill_component_compile_seconds_sum") > 0.0);

    let backlog = "gristmill_store_checkpoint_backlog_bytes";
    let before = now.get(backlog);
    for _ in 0..20 {
        client.submit(&endpoint, json!({})).await;
    }
    let grown = Samples::read(&client).await.get(backlog) - before;
    // A row of the table of jobs has some 150 bytes.
    assert!((2_000.0..20_000.0).contains(&grown), "{grown}");

    let disk = rustix::fs::statvfs(host.data_dir()).unwrap();
    let (bytes, inodes) = (disk.f_bavail * disk.f_frsize, disk.f_favail);
    let is_near = |name: &str, expected: u64, most: f64| {
        let expected: f64 = expected.to_string().parse().unwrap();
        let value = now.get(name);
        assert!((value - expected).abs() <= most, "{name}: {value} instead of {expected}");
    };
    // Other programs use the disk too.
    is_near("gristmill_disk_free_bytes", bytes, 2e9);
    is_near("gristmill_disk_free_inodes", inodes, 1e5);
}

#[tokio::test]
async fn workers_are_counted_by_their_state() {
    let host = TestHost::start_with(&["--max-running-jobs", "2"]);
    let client = host.client();
    let settings = json!({ "workersMin": 1, "workersMax": 3 });
    let endpoint = host.deploy(&guests::playground(), "working", settings).await;
    let until = async |expected: &[(&str, f64)]| {
        eventually(&format!("{expected:?}"), async || {
            let now = Samples::read(&client).await;
            let workers = |state: &str| {
                now.get(&format!(r#"gristmill_workers{{endpoint="{endpoint}",state="{state}"}}"#))
            };
            expected.iter().all(|(state, count)| workers(state) == *count).then_some(())
        })
        .await;
    };
    until(&[("idle", 1.0), ("running", 0.0), ("throttled", 0.0)]).await;
    for _ in 0..3 {
        client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    }
    until(&[("idle", 0.0), ("running", 2.0), ("throttled", 1.0), ("unhealthy", 0.0)]).await;
}

#[tokio::test]
async fn refused_submissions_are_counted_by_their_code() {
    let host = TestHost::start();
    let client = host.client();
    let settings = json!({ "workersMax": 0, "maxWaitingJobs": 1, "rateLimits": { "run": { "callsPer10s": 3 } } });
    let endpoint = host.deploy(&guests::echo(), "refusing", settings).await;
    client.submit(&endpoint, json!({})).await;
    client.run(&endpoint, json!({})).await.refused(429);
    client.run(&endpoint, json!({})).await.refused(429);
    for _ in 0..2 {
        client.run(&endpoint, json!({})).await.refused(429);
    }
    client.get(&format!("/v2/{endpoint}/health")).await.ok();
    let now = Samples::read(&client).await;
    let refused = |code| {
        now.get(&format!(r#"gristmill_jobs_refused_total{{endpoint="{endpoint}",code="{code}"}}"#))
    };
    assert_eq!((refused("queue_full"), refused("rate_limited")), (2.0, 2.0));
    assert_eq!((refused("concurrency_limited"), refused("disk_full")), (0.0, 0.0));
}

#[tokio::test]
async fn endpoints_beyond_the_bound_share_a_series_that_never_falls() {
    let host = TestHost::start_with(&["--metrics-endpoints", "1"]);
    let client = host.client();
    let mut names = vec![];
    for name in ["first", "second", "third"] {
        names.push(host.deploy(&guests::echo(), name, json!({})).await);
        Samples::read(&client).await;
    }
    for name in &names {
        client.run_sync(name, "", json!({})).await.ok();
    }
    let other = r#"gristmill_jobs_finished_total{endpoint="(other)",status="completed"}"#;
    let first = r#"gristmill_jobs_finished_total{endpoint="first",status="completed"}"#;
    // A job counts soon after its answer.
    eventually("the jobs to count", async || {
        let now = Samples::read(&client).await;
        ((now.get(other), now.get(first)) == (2.0, 1.0)).then_some(())
    })
    .await;
    assert_eq!(client.delete("/v1/endpoints/second").await.status, 204);
    assert_eq!(Samples::read(&client).await.get(other), 2.0, "the deleted endpoint's job counts");
}

#[tokio::test]
async fn a_second_address_serves_metrics_and_probes_without_a_key_and_nothing_else() {
    let mut host = TestHost::start_with(&["--metrics-listen", "127.0.0.1:0"]);
    let endpoint = host.deploy(&guests::playground(), "slow", json!({})).await;
    let client = host.client();
    let address = host.ready()["metricsAddr"].as_str().expect("the address").to_owned();
    let collector = Client::new(&format!("http://{address}"), "").with_authorization(None);
    let text = collector.get("/metrics").await;
    assert_eq!(text.status, 200, "{text:?}");
    assert!(text.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    Samples::of(&text.text).get(r#"gristmill_jobs_waiting{endpoint="slow"}"#);
    for path in ["/v1/templates", "/v1/keys", "/v2/slow/health", "/openapi.json", "/v1/backup"] {
        assert_eq!(collector.get(path).await.status, 404, "{path}");
        client.with_authorization(None).get("/metrics").await.refused(401);
    }

    // A website can make a browser call this machine, by a name of its own that resolves to it.
    for (header, value, status) in [
        ("host", "metrics.example.com", 401),
        ("host", "localhost:9090", 200),
        ("sec-fetch-site", "cross-site", 401),
    ] {
        let call = collector.request(Method::GET, "/metrics").header(header, value);
        assert_eq!(collector.send(call).await.status, status, "{header}: {value}");
    }

    let anyone = client.with_authorization(None);
    for from in [&anyone, &collector] {
        assert_eq!(from.get("/livez").await.text, "live\n");
        assert_eq!(from.get("/readyz").await.text, "ready\n");
    }
    let job = client.submit(&endpoint, json!({ "op": "sleep", "ms": 8_000 })).await;
    client.until(&endpoint, &job, "IN_PROGRESS").await;
    host.ask_to_end();
    eventually("the host not to be ready", async || {
        let answer = collector.get("/readyz").await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert_eq!(collector.get("/livez").await.status, 200, "it still runs a job");
    let drains = collector.get("/metrics").await;
    assert!(drains.text.contains("\ngristmill_active 0\n"), "{drains:?}");
    assert!(host.wait(Duration::from_secs(60)).success());
}

#[tokio::test]
async fn one_address_that_holds_many_connections_for_metrics_silences_no_probe() {
    let host = TestHost::start_with(&["--metrics-listen", "127.0.0.1:0"]);
    let address = host.ready()["metricsAddr"].as_str().expect("the address").to_owned();
    let mut silent = vec![];
    for _ in 0..100 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    let supervisor = Client::new(&format!("http://{address}"), "").with_authorization(None);
    let probe = tokio::time::timeout(Duration::from_secs(30), supervisor.get("/livez")).await;
    assert_eq!(probe.expect("an answer before a silent connection is closed").text, "live\n");
}

#[tokio::test]
async fn a_key_for_metrics_reads_nothing_else_and_is_the_operators() {
    let host = TestHost::start();
    let client = host.client();
    let collector = client.with_scopes(&["metrics"]).await;
    Samples::read(&collector).await;
    for path in ["/v1/templates", "/v1/keys", "/v2/nothing/health", "/v1/endpoints"] {
        collector.get(path).await.refused(401);
    }
    let of_other = json!({ "name": "m", "scopes": ["metrics"], "owner": "miller" });
    let refused = client.post("/v1/keys", &of_other).await;
    refused.refused(400);
    assert!(refused.text.contains("`metrics` is for keys of the operator"), "{refused:?}");
}
