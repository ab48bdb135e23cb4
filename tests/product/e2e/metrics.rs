//! `/metrics` counts what happened, for each endpoint, and probes need no key.

use std::collections::BTreeMap;
use std::time::Duration;

use gristmill_tests::{Client, Receiver, TestHost, eventually, guests};
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

/// A job expires while it waits and while it runs. A ttl that ends after the job, a purge and the deletion of an
/// endpoint are no expiry.
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
    assert!(count(r#"job_run_seconds_sum{endpoint="@"}"#) >= 5.0);
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
    let now = Samples::read(&client).await;
    assert_eq!(now.get(other), 2.0);
    assert_eq!(
        now.get(r#"gristmill_jobs_finished_total{endpoint="first",status="completed"}"#),
        1.0
    );
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
    let key = json!({ "name": "prometheus", "scopes": ["metrics"] });
    let made = client.post("/v1/keys", &key).await.ok();
    let collector = client.with_key(made["key"].as_str().unwrap());
    Samples::read(&collector).await;
    for path in ["/v1/templates", "/v1/keys", "/v2/nothing/health", "/v1/endpoints"] {
        collector.get(path).await.refused(401);
    }
    let of_other = json!({ "name": "m", "scopes": ["metrics"], "owner": "miller" });
    let refused = client.post("/v1/keys", &of_other).await;
    refused.refused(400);
    assert!(refused.text.contains("`metrics` is for keys of the operator"), "{refused:?}");
}
