//! `GET /v1/events`: what changes, while it changes.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use gristmill_client::{Event, EventParser};
use gristmill_tests::{Client, PATIENCE, TestHost, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

/// A stream of events that is being read.
struct Events {
    body: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    parser: EventParser,
    read: std::collections::VecDeque<Event>,
}

impl Events {
    async fn open(client: &Client, topics: &str) -> Self {
        let path = format!("/v1/events?topics={topics}");
        let answer = client.request(Method::GET, &path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{topics}");
        let media_type = answer.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(media_type.starts_with("text/event-stream"), "{media_type}");
        let body = answer.bytes_stream().boxed();
        Self { body, parser: EventParser::new(usize::MAX), read: [].into() }
    }

    /// The next event; `None` when the stream has ended.
    async fn try_next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Some((event.kind, serde_json::from_str(&event.data).unwrap()));
            }
            let bytes = timeout(PATIENCE, self.body.next()).await.unwrap()?.ok()?;
            self.read.extend(self.parser.push(&bytes).unwrap());
        }
    }

    async fn next(&mut self) -> (String, Value) {
        self.try_next().await.expect("the stream goes on")
    }

    /// The first event of this kind whose data fits.
    async fn until(&mut self, kind: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let fitting = async {
            loop {
                let (found, data) = self.next().await;
                if found == kind && fits(&data) {
                    return data;
                }
            }
        };
        // Comments go on for ever.
        timeout(PATIENCE, fitting).await.expect("such an event")
    }
}

#[tokio::test]
async fn an_overview_begins_with_all_endpoints_and_goes_on_with_changes() {
    let host = TestHost::start();
    let client = host.client();
    let echo = host.deploy(&guests::echo(), "live-echo", json!({})).await;
    let quiet = host.deploy(&guests::echo(), "live-quiet", json!({})).await;
    let mut events = Events::open(&client, "overview").await;
    let (kind, first) = events.next().await;
    assert_eq!(kind, "overview");
    assert!(first["at"].as_u64().unwrap() > 1_700_000_000_000, "{first}");
    for endpoint in [&echo, &quiet] {
        let values = first["endpoints"][endpoint].as_object().unwrap();
        let mut names: Vec<_> = values.keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected = [
            "cancelled",
            "completed",
            "failed",
            "running",
            "submitted",
            "timedOut",
            "version",
            "waiting",
            "workers",
        ];
        assert_eq!(names, expected, "{first}");
    }
    for _ in 0..5 {
        client.finish(&echo, json!({})).await;
    }
    let is_done = |data: &Value| data["endpoints"][&echo]["completed"] == 5;
    let changed = events.until("overview", is_done).await;
    assert_eq!(changed["endpoints"][&echo]["submitted"], 5);
    assert!(changed["endpoints"].get(&quiet).is_none(), "it has not changed: {changed}");
    assert_eq!(first["endpoints"][&quiet]["version"], 1);
    client.patch(&format!("/v1/endpoints/{quiet}"), &json!({ "workersMax": 0 })).await.ok();
    events.until("overview", |data| data["endpoints"][&quiet]["version"] == 2).await;
    let job = client.submit(&quiet, json!({})).await;
    client.submit(&quiet, json!({})).await;
    events.until("overview", |data| data["endpoints"][&quiet]["waiting"] == 2).await;
    // A job is cancelled once, however often it is asked for.
    for _ in 0..2 {
        client.cancel(&quiet, &job).await.ok();
    }
    client.purge(&quiet).await.ok();
    let is_empty = |data: &Value| data["endpoints"][&quiet]["waiting"] == 0;
    let purged = events.until("overview", is_empty).await;
    assert_eq!(purged["endpoints"][&quiet]["cancelled"], 2, "{purged}");
    assert_eq!(client.delete(&format!("/v1/endpoints/{quiet}")).await.status, 204);
    let is_deleted = |data: &Value| data["endpoints"].get(&quiet) == Some(&Value::Null);
    events.until("overview", is_deleted).await;
}

#[tokio::test]
async fn an_endpoint_and_a_job_are_followed_by_one_stream() {
    let host = shared_host();
    let client = &host.client;
    let endpoint = host.deploy(&guests::playground(), "live-one", json!({})).await;
    client.patch(&format!("/v1/endpoints/{endpoint}"), &json!({ "workersMax": 0 })).await.ok();
    let job = client.submit(&endpoint, json!({ "op": "echo", "value": 1 })).await;
    let topics = format!("endpoint:{endpoint},job:{endpoint}/{job}");
    let mut events = Events::open(client, &topics).await;
    let first = events.until("job", |_| true).await;
    assert_eq!(first, json!({ "endpoint": endpoint, "id": job, "status": "IN_QUEUE" }));
    let values = events.until("endpoint", |_| true).await;
    assert_eq!((&values["id"], &values["waiting"]), (&json!(endpoint), &json!(1)));
    assert_eq!(values["newest"], json!({ "jobs": 0 }));
    for _ in 0..3 {
        client.submit(&endpoint, json!({ "op": "echo" })).await;
    }
    events.until("endpoint", |data| data["newest"]["jobs"] == 3).await;
    client.patch(&format!("/v1/endpoints/{endpoint}"), &json!({ "workersMax": 1 })).await.ok();
    events.until("job", |data| data["status"] == "COMPLETED").await;
    assert_eq!(client.delete(&format!("/v1/endpoints/{endpoint}")).await.status, 204);
    events.until("endpoint", |data| data["deleted"] == true).await;
}

#[tokio::test]
async fn events_are_only_about_what_the_key_sees() {
    let host = TestHost::start();
    let [a, b] = [host.client_of("a").await, host.client_of("b").await];
    a.deploy(&guests::echo(), "secret", json!({})).await;
    let job = a.submit("secret", json!({})).await;
    let (_, first) = Events::open(&b, "overview").await.next().await;
    assert_eq!(first["endpoints"], json!({}));
    let (_, first) = Events::open(&a, "overview").await.next().await;
    assert!(first["endpoints"]["secret"].is_object(), "{first}");
    for (theirs, missing) in [
        ("endpoint:secret".to_owned(), "endpoint:nothing".to_owned()),
        (format!("job:secret/{job}"), format!("job:nothing/{job}")),
        (format!("overview,job:secret/{job}"), format!("overview,job:nothing/{job}")),
    ] {
        let theirs = b.get(&format!("/v1/events?topics={theirs}")).await.refused(404);
        let missing = b.get(&format!("/v1/events?topics={missing}")).await.refused(404);
        assert_eq!(theirs.replace("secret", "nothing"), missing);
    }
    for id in ["x", "0192f3a0-0000-7000-8000-000000000000-0000", ""] {
        let refused = a.get(&format!("/v1/events?topics=job:secret/{id}")).await.refused(404);
        assert!(refused.starts_with("job not found"), "{refused}");
    }
}

#[tokio::test]
async fn a_wrong_or_too_long_list_of_topics_is_refused() {
    let client = &shared_host().client;
    for topics in ["", "?topics=", "?topics=all", "?topics=overview,", "?topics=job:a"] {
        let refused = client.get(&format!("/v1/events{topics}")).await.refused(400);
        assert!(refused.contains("`topics`"), "{refused}");
    }
    let many = vec!["overview"; 33].join(",");
    let refused = client.get(&format!("/v1/events?topics={many}")).await.refused(400);
    assert!(refused.contains("32"), "{refused}");
}

#[tokio::test]
async fn the_streams_of_an_owner_are_bounded_and_end_with_their_key() {
    let host = TestHost::start_configured("[rate-limits.events]\nconcurrent = 3\n");
    let new = json!({ "name": "k", "owner": "a", "scopes": ["read"] });
    let made = host.client().post("/v1/keys", &new).await.ok();
    let client = host.client().with_key(made["key"].as_str().unwrap());
    let mut open = vec![];
    for _ in 0..3 {
        let mut events = Events::open(&client, "overview").await;
        events.next().await;
        open.push(events);
    }
    let refused = client.get("/v1/events?topics=overview").await.refused(429);
    assert!(refused.contains("events"), "{refused}");
    // Other calls of the owner, and streams of other owners, go on.
    client.get("/v1/jobs").await.ok();
    Events::open(&host.client(), "overview").await.next().await;
    let id = made["id"].as_str().unwrap();
    assert_eq!(host.client().delete(&format!("/v1/keys/{id}")).await.status, 204);
    for mut events in open {
        while timeout(Duration::from_secs(60), events.try_next()).await.unwrap().is_some() {}
    }
}
