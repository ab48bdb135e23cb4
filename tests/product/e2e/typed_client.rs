//! The client crate: typed calls of both APIs, streams that continue over broken connections, and
//! the repetition of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gristmill_client::wire::bounds::WAIT_MS;
use gristmill_client::wire::id::{EndpointId, TemplateId};
use gristmill_client::wire::management::{
    BucketSize, EndpointInput, NetworkVolumeInput, NewKey, NewNetworkVolume, NewRegistryAuth,
    Rollback, ScalerType, TemplateInput,
};
use gristmill_client::wire::queue::{Policy, QueueCause, Submission};
use gristmill_client::wire::{ErrorCode, JobStatus, Scope};
use gristmill_client::{
    BillingQuery, Client, ClientError, Deployed, LogQuery, RequestFilter, Retries, StreamUpdate,
    TemplateFilter,
};
use gristmill_tests::{Reply, ScriptedServer, TestHost, guests, shared_host};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

/// Long enough for any job of these tests.
const LONG: Duration = Duration::from_millis(WAIT_MS.max);

fn client(url: &str, key: &str) -> Client {
    Client::builder(url.parse().unwrap()).key(key).build().unwrap()
}

fn input(value: &serde_json::Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

#[tokio::test]
async fn a_job_is_submitted_once_awaited_and_read() {
    let host = shared_host();
    let client = client(host.url(), host.admin_key());
    let endpoint = host.deploy(&guests::echo(), "typed-echo", json!({})).await;
    let endpoint: EndpointId = endpoint.parse().unwrap();

    let text = RawValue::from_string(r#"{"n": 9007199254740993}"#.to_owned()).unwrap();
    let job = Submission::new(&text);
    let first = client.run(&endpoint, &job, Some("order-17")).await.unwrap().read().unwrap();
    let second = client.run(&endpoint, &job, Some("order-17")).await.unwrap().read().unwrap();
    assert_eq!(first.id, second.id, "the key makes one job of both");

    let document = client.wait(&endpoint, &first.id, LONG).await.unwrap().read().unwrap();
    assert_eq!((document.id.as_ref(), document.status), (&*first.id, JobStatus::Completed));
    assert_eq!(document.output.unwrap().get(), text.get(), "byte for byte");
    let status = client.status(&endpoint, &first.id).await.unwrap();
    assert!(status.text().contains(text.get()) && status.read().unwrap().status.is_final());
    let sync = client.run_sync(&endpoint, &job, LONG, None).await.unwrap().read().unwrap();
    assert_eq!(sync.status, JobStatus::Completed);

    let timeline = client.timeline(&endpoint, &first.id).await.unwrap().read().unwrap();
    assert_eq!(timeline.events[0].cause, Some(QueueCause::Submitted));
    let filter = RequestFilter { status: Some(JobStatus::Completed), limit: Some(1), cursor: None };
    let page = client.requests(&endpoint, &filter).await.unwrap().read().unwrap();
    assert_eq!(page.requests.len(), 1);
    let filter = RequestFilter { cursor: page.cursor, ..filter };
    let page = client.requests(&endpoint, &filter).await.unwrap().read().unwrap();
    assert_eq!(page.requests.len(), 1, "the page after the first");
    let health = client.health(&endpoint).await.unwrap().read().unwrap();
    assert_eq!(health.jobs.completed, 2);
}

#[tokio::test]
async fn jobs_are_cancelled_purged_and_retried_and_refusals_are_typed() {
    let host = shared_host();
    let client = client(host.url(), host.admin_key());
    let endpoint =
        host.deploy(&guests::playground(), "typed-ends", json!({ "workersMax": 1 })).await;
    let endpoint: EndpointId = endpoint.parse().unwrap();

    let slow = input(&json!({ "op": "sleep", "ms": 600_000 }));
    let slow = Submission::new(&slow);
    let running = client.run(&endpoint, &slow, None).await.unwrap().read().unwrap().id;
    host.client.until(endpoint.as_str(), &running, "IN_PROGRESS").await;
    client.run(&endpoint, &slow, None).await.unwrap();
    let purged = client.purge(&endpoint).await.unwrap().read().unwrap();
    assert_eq!((purged.removed, &*purged.status), (1, "completed"));
    let cancelled = client.cancel(&endpoint, &running).await.unwrap().read().unwrap();
    assert_eq!(cancelled.status, JobStatus::Cancelled);

    let error = client.retry(&endpoint, &running).await.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(400), Some(ErrorCode::BadRequest)));
    assert!(error.to_string().contains("job is CANCELLED"), "{error}");
    let error = client.status(&endpoint, "nonsense").await.unwrap_err();
    assert!(error.is_not_found() && error.code() == Some(ErrorCode::NotFound), "{error:?}");

    let failing = input(&json!({ "op": "fail", "message": "no luck" }));
    let policy = Policy { low_priority: Some(false), ttl: Some(600_000), ..Policy::default() };
    let failing = Submission { policy: Some(policy), ..Submission::new(&failing) };
    let failed = client.run_sync(&endpoint, &failing, LONG, None).await.unwrap().read().unwrap();
    assert_eq!(failed.status, JobStatus::Failed);
    assert!(failed.error.unwrap().contains("no luck"));
    let again = client.retry(&endpoint, &failed.id).await.unwrap().read().unwrap();
    assert_eq!((&*again.id, again.status), (&*failed.id, JobStatus::InQueue));

    let wrong = Client::builder(host.url().parse().unwrap()).key("gm_a_b").build().unwrap();
    let error = wrong.health(&endpoint).await.unwrap_err();
    assert_eq!((error.status(), error.code()), (Some(401), Some(ErrorCode::Unauthorized)));
}

#[tokio::test]
async fn a_refusal_says_when_to_call_again() {
    let host = shared_host();
    let limits = json!({ "rateLimits": { "run": { "callsPer10s": 1 } } });
    let endpoint = host.deploy(&guests::echo(), "typed-limit", limits).await;
    let endpoint: EndpointId = endpoint.parse().unwrap();
    let builder = Client::builder(host.url().parse().unwrap()).key(host.admin_key());
    let once = builder.retries(Retries::NONE).build().unwrap();
    let empty = input(&json!({}));
    let job = Submission::new(&empty);
    once.run(&endpoint, &job, None).await.unwrap();
    let error = once.run(&endpoint, &job, None).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::RateLimited), "{error:?}");
    let wait = error.retry_after().unwrap();
    assert!(wait > Duration::ZERO && wait <= Retries::default().wait_max, "{wait:?}");
    assert!(error.is_retry_safe());

    // A client that may wait for so long is admitted.
    let began = Instant::now();
    let patient = client(host.url(), host.admin_key());
    patient.run(&endpoint, &job, None).await.unwrap();
    assert!(began.elapsed() + Duration::from_secs(2) >= wait, "{:?} of {wait:?}", began.elapsed());
}

#[tokio::test]
async fn a_stream_is_followed_to_the_jobs_end() {
    let host = shared_host();
    let client = client(host.url(), host.admin_key());
    let endpoint = host.deploy(&guests::playground(), "typed-stream", json!({})).await;
    let endpoint: EndpointId = endpoint.parse().unwrap();
    let four = input(&json!({ "op": "stream", "count": 4, "delay_ms": 60 }));
    let job = client.run(&endpoint, &Submission::new(&four), None).await.unwrap().read().unwrap();
    let mut stream = client.stream(&endpoint, &job.id, Some(1));
    let mut outputs = vec![];
    let end = loop {
        match stream.next().await.unwrap() {
            StreamUpdate::Chunk(chunk) => {
                assert!(chunk.read().unwrap().metrics.get().contains("stream_index"));
                outputs.push(chunk.output().unwrap().get().to_owned());
            }
            StreamUpdate::Restart(restart) => panic!("{restart:?}"),
            StreamUpdate::End(end) => break end,
        }
    };
    assert_eq!(outputs, [r#"{"i":1}"#, r#"{"i":2}"#, r#"{"i":3}"#]);
    assert_eq!((&*end.id, end.status, end.error), (&*job.id, JobStatus::Completed, None));
}

#[tokio::test]
async fn a_broken_stream_continues_after_its_last_event() {
    let chunk = |id: &str, n: u32| {
        format!("id: {id}\ndata: {{\"output\":{n},\"metrics\":{{\"stream_index\":0}}}}\n\n")
    };
    let parts = [
        chunk("0", 10),
        format!("{}event: restart\ndata: {{\"id\":\"j\",\"attempt\":2}}\n\n", chunk("1", 11)),
        "event: of a later version\ndata: {}\n\n".to_owned() + &chunk("2-0", 20),
        "event: end\ndata: {\"id\":\"j\",\"status\":\"FAILED\",\"error\":\"no\"}\n\n".to_owned(),
    ];
    let calls = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |_, _| {
        Reply::ok(parts[calls.fetch_add(1, Ordering::SeqCst)].clone())
    })
    .await;
    let client = client(&format!("http://{}", server.host()), "gm_x");
    let mut stream = client.stream(&"e".parse().unwrap(), "j", Some(0));
    let mut seen = vec![];
    loop {
        match stream.next().await.unwrap() {
            StreamUpdate::Chunk(chunk) => seen.push(chunk.output().unwrap().get().to_owned()),
            StreamUpdate::Restart(restart) => seen.push(format!("attempt {}", restart.attempt)),
            StreamUpdate::End(end) => {
                seen.push(format!("{}: {}", end.status, end.error.unwrap()));
                break;
            }
        }
    }
    assert_eq!(seen, ["10", "11", "attempt 2", "20", "FAILED: no"]);
    let expected = [None, Some("0".into()), Some("1".into()), Some("2-0".into())];
    assert_eq!(positions(&server), expected);
}

#[tokio::test]
async fn a_follower_of_lines_continues_after_its_position_although_it_has_no_line_yet() {
    let parts = ["id: 7\n\n", ":\n\n", "id: 9\ndata: {\"line\":1}\n\n"];
    let calls = AtomicUsize::new(0);
    let server =
        ScriptedServer::start(move |_, _| Reply::ok(parts[calls.fetch_add(1, Ordering::SeqCst)]))
            .await;
    let client = client(&format!("http://{}", server.host()), "gm_x");
    let query = LogQuery { tail: Some(0), ..LogQuery::default() };
    let mut lines = client.follow_logs(&"e".parse().unwrap(), &query);
    assert_eq!(lines.next().await.unwrap().text(), r#"{"line":1}"#);
    assert_eq!(positions(&server), [None, Some("7".into()), Some("7".into())]);
}

/// The event after which each call asked the host to continue.
fn positions(server: &ScriptedServer) -> Vec<Option<String>> {
    let heads = server.heads();
    let position = |head: &String| {
        head.lines().find_map(|line| line.strip_prefix("last-event-id: ")).map(str::to_owned)
    };
    heads.iter().map(position).collect()
}

#[tokio::test]
async fn only_a_call_that_cannot_do_its_work_twice_is_repeated() {
    let endpoint: EndpointId = "e".parse().unwrap();
    let empty = input(&json!({}));
    let job = Submission::new(&empty);
    // Each kind of refusal once, then a success: the number of calls shows whether it is repeated.
    let cases = [
        ("429 Too Many Requests", "queue_full", 2, 2),
        ("503 Service Unavailable", "disk_full", 2, 2),
        ("503 Service Unavailable", "unavailable", 1, 2),
        ("502 Bad Gateway", "of_a_proxy", 1, 2),
        ("500 Internal Server Error", "internal", 1, 1),
        ("422 Unprocessable Entity", "idempotency_mismatch", 1, 1),
    ];
    for (status, code, without_key, with_key) in cases {
        for (key, expected) in [(None, without_key), (Some("k"), with_key)] {
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            let server =
                ScriptedServer::start(move |_, _| match counted.fetch_add(1, Ordering::SeqCst) {
                    0 => Reply {
                        body: format!(r#"{{"error":"no","code":"{code}"}}"#).into(),
                        ..Reply::with(status, &["Retry-After: 0"])
                    },
                    _ => Reply::ok(r#"{"id":"j","status":"IN_QUEUE"}"#),
                })
                .await;
            let client = client(&format!("http://{}", server.host()), "gm_x");
            let answer = client.run(&endpoint, &job, key).await;
            let made = calls.load(Ordering::SeqCst);
            assert_eq!(
                (made, answer.is_ok()),
                (expected, expected == 2),
                "{status} {code} {key:?}"
            );
        }
    }
    // A connection that closes without an answer: the host may have made the job.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&format!("http://{}", listener.local_addr().unwrap()), "gm_x");
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let closing = tokio::spawn(async move {
        while let Ok(_closed) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let error = client.run(&endpoint, &job, None).await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted(_)), "{error:?}");
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
    client.run(&endpoint, &job, Some("k")).await.unwrap_err();
    assert_eq!(accepted.load(Ordering::SeqCst), 1 + 4, "the first call and three repetitions");
    closing.abort();
}

#[tokio::test]
async fn every_kind_of_object_is_managed() {
    let host = TestHost::start();
    let client = client(host.url(), host.admin_key());

    let volume = NewNetworkVolume { name: "grain".into(), size: 1, data_center_id: None };
    let volume = client.create_volume(&volume).await.unwrap().read().unwrap();
    let larger = NetworkVolumeInput { size: Some(2), ..NetworkVolumeInput::default() };
    client.update_volume(volume.id.as_str(), &larger).await.unwrap();
    assert_eq!(client.volume(volume.id.as_str()).await.unwrap().read().unwrap().size, 2);
    assert_eq!(client.volumes().await.unwrap().read().unwrap().len(), 1);

    let component = std::fs::read(guests::playground()).unwrap();
    let handler = client.upload("mill:1", component.into(), Arc::new(|_| ())).await.unwrap();
    let handler = handler.read().unwrap();
    assert_eq!(client.handler("mill:1").await.unwrap().read().unwrap(), handler);
    assert_eq!(client.handlers().await.unwrap().read().unwrap(), [handler]);

    let id = TemplateId::new("mill").unwrap();
    let template = TemplateInput {
        image_name: Some("mill:1".into()),
        is_serverless: Some(true),
        ..TemplateInput::default()
    };
    assert_eq!(client.put_template(&id, &template).await.unwrap(), Deployed::Created);
    assert_eq!(client.put_template(&id, &template).await.unwrap(), Deployed::Updated);
    let all = client.templates(TemplateFilter::ALL).await.unwrap().read().unwrap();
    assert_eq!((all.len(), &*all[0].name, all[0].earned.as_str()), (1, "mill", "0"));

    let endpoint = EndpointInput {
        id: Some("mill".parse().unwrap()),
        template_id: Some(id.clone()),
        scaler_type: Some(ScalerType::QueueDelay),
        scaler_value: Some(4),
        allowed_hosts: Some(vec!["example.com".parse().unwrap()]),
        network_volume_id: Some(volume.id.to_string()),
        ..EndpointInput::default()
    };
    let made = client.create_endpoint(&endpoint).await.unwrap().read().unwrap();
    assert!(!made.webhook_secret.is_empty() && !format!("{made:?}").contains(&made.webhook_secret));
    let shown = client.endpoint("mill").await.unwrap().read().unwrap();
    assert_eq!(shown, made.endpoint);
    let settings = shown.settings;
    assert_eq!((settings.scaler_type, settings.scaler_value), (ScalerType::QueueDelay, 4));
    let paused = EndpointInput { paused: Some(true), ..EndpointInput::default() };
    let answer = client.update_endpoint("mill", &paused).await.unwrap().read().unwrap();
    let answered = (answer.settings.paused, answer.settings.workers_max);
    assert_eq!(answered, (true, settings.workers_max));
    let again =
        EndpointInput { paused: Some(false), workers_max: Some(2), ..EndpointInput::default() };
    client.update_endpoint("mill", &again).await.unwrap();
    let rotated = client.rotate_webhook_secret("mill").await.unwrap().read().unwrap();
    assert_ne!(rotated.webhook_secret, made.webhook_secret);
    let releases = client.releases("mill").await.unwrap().read().unwrap();
    assert_eq!(releases[0].version, 1);
    let error = client.roll_back("mill", &Rollback::default()).await.unwrap_err();
    assert_eq!(error.status(), Some(400), "there is no earlier release: {error:?}");

    let mill: EndpointId = "mill".parse().unwrap();
    let logging = input(&json!({ "op": "log", "message": "the mill turns" }));
    let job = client.run_sync(&mill, &Submission::new(&logging), LONG, None).await.unwrap();
    let job = job.read().unwrap();
    let query = LogQuery { job: Some(job.id.to_string()), ..LogQuery::default() };
    let mut lines = client.follow_logs(&mill, &query);
    let line = lines.next().await.unwrap().read().unwrap();
    assert_eq!(line.job_id, job.id.as_ref());
    let lines = client.logs(&mill, &query).await.unwrap().read().unwrap();
    assert_eq!(lines[0], line);
    assert_eq!(client.deliveries("mill").await.unwrap().read().unwrap(), []);
    let query = BillingQuery { bucket: Some(BucketSize::Hour), ..BillingQuery::default() };
    let usage = client.billing(&query).await.unwrap().read().unwrap();
    assert_eq!((usage[0].group(), usage[0].jobs), ("mill", 1));

    let key = NewKey {
        name: "ci".into(),
        scopes: vec![Scope::Submit],
        owner: None,
        endpoints: Some(vec![mill.clone()]),
        expires_in_seconds: Some(60),
    };
    let key = client.create_key(&key).await.unwrap().read().unwrap();
    assert!(!format!("{key:?}").contains(&key.text), "the key is not in debug output");
    let limited = Client::builder(host.url().parse().unwrap()).key(&*key.text).build().unwrap();
    assert_eq!(limited.health(&mill).await.unwrap().read().unwrap().jobs.completed, 1);
    assert_eq!(limited.endpoints().await.unwrap_err().status(), Some(401));
    client.revoke_key(key.key.id.as_str()).await.unwrap();
    assert_eq!(client.keys().await.unwrap().read().unwrap().len(), 1);

    let auth = NewRegistryAuth {
        name: "hub".into(),
        registry: Some("ghcr.io".into()),
        username: "mill".into(),
        password: "flour".into(),
    };
    assert!(!format!("{auth:?}").contains("flour"));
    let auth = client.create_registry_auth(&auth).await.unwrap().read().unwrap();
    let shown = client.registry_auth(auth.id.as_str()).await.unwrap().read().unwrap();
    assert_eq!(shown, auth);
    client.delete_registry_auth(auth.id.as_str()).await.unwrap();
    assert!(client.registry_auths().await.unwrap().read().unwrap().is_empty());

    let mut backup = client.backup(false).await.unwrap();
    let mut bytes = 0;
    while let Some(piece) = backup.next().await.unwrap() {
        bytes += piece.len();
    }
    assert!(bytes > 10_000, "{bytes}");
    client.rotate_secrets_key().await.unwrap().read().unwrap();

    client.delete_endpoint("mill").await.unwrap();
    assert!(client.endpoints().await.unwrap().read().unwrap().is_empty());
    client.delete_template("mill").await.unwrap();
    assert!(client.template("mill", TemplateFilter::ALL).await.unwrap_err().is_not_found());
    client.delete_handler("mill:1").await.unwrap();
    client.delete_volume(volume.id.as_str()).await.unwrap();
}
