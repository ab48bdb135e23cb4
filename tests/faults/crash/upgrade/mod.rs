//! Data directories and databases that each version since the first release has left behind are
//! opened without a loss.
//!
//! `tests/fixtures/record.py` records them with a real binary of each version of the tables,
//! together with every document that this binary returned. The host of this test has a clock that
//! starts where the recording ended, so that no job expires and the tests pass on any later date.
//! One archive takes some ten seconds: the interrupted job sleeps for five, and its handler is
//! compiled. The upgrade itself is tested with a fictitious version, in
//! `host/store/tests/upgrade.rs` and `tests/faults/disk/upgrade.rs`.

/// One test for each archive, so that they run beside each other: each calls the `loses_nothing` of
/// its module.
macro_rules! recorded {
    ($($name:ident: $archive:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            loses_nothing(concat!($archive, ".tar.gz")).await;
        }
    )*};
}

mod archive;
mod compare;
mod database;
mod import;

use std::path::Path;
use std::process::Stdio;

use data_encoding::HEXLOWER;
use gristmill_core::webhook::signature::WebhookSecret;
use gristmill_tests::recorded::{content, unpack};
use gristmill_tests::{
    Client, PATIENCE, Receiver, Reply, ScriptedServer, TestHost, command, eventually,
};
use reqwest::Method;
use rusqlite::config::DbConfig;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use archive::{Expected, PartlyRead, Repeat, Secrets, Webhook};

/// The schema version that this host writes.
const SCHEMA_VERSION: u64 = 1;

/// The wait between two attempts of a webhook, in milliseconds.
const RETRY_INTERVAL_MS: u64 = 10_000;

/// The retention of the results of `run`, in milliseconds.
const RETENTION_MS: u64 = 30 * 60_000;

recorded! {
    a_directory_of_version_1_is_opened_after_an_orderly_end: "version-1-closed";
    a_directory_of_version_1_is_opened_after_a_crash: "version-1-killed";
}

/// A repair reads every row itself, and must not take a row without some part for a damaged one.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_of_an_undamaged_directory_loses_nothing() {
    for archive in ["version-1-closed.tar.gz", "version-1-killed.tar.gz"] {
        let recorded = Recorded::start_with(archive, |data| repair(archive, data)).await;
        assert_eq!(recorded.host.ready()["upgraded"], Value::Null, "{archive}");
        recorded.has_same_documents().await;
    }
}

/// Unpacks an archive, and writes its repaired data to `data`.
fn repair(archive: &str, data: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("data");
    unpack(archive, &source);
    let mut repair = command();
    repair.arg("repair").arg("--data-dir").arg(&source).arg("--output").arg(data);
    let repaired = repair.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(repaired.stderr).unwrap();
    let losses = String::from_utf8(repaired.stdout).unwrap();
    assert!(repaired.status.success(), "{archive}: {said}{losses}");
    assert!(said.contains("nothing is lost") && losses.is_empty(), "{archive}: {said}{losses}");
}

#[test]
fn a_directory_of_a_newer_version_is_refused_and_not_changed() {
    for archive in ["version-1-closed.tar.gz", "version-1-killed.tar.gz"] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        unpack(archive, &data);
        // The new version stays in the write-ahead log, as after a crash.
        let db = rusqlite::Connection::open(data.join("store.db")).unwrap();
        db.pragma_update(None, "locking_mode", "EXCLUSIVE").unwrap();
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        let newer = i64::try_from(SCHEMA_VERSION + 1).unwrap();
        db.pragma_update(None, "user_version", newer).unwrap();
        drop(db);
        let before = content(&data);
        assert!(!before[Path::new("store.db-wal")].is_empty());
        let file = data.join("store.db");
        let sentence = format!(
            "job store `{}` has schema version {}, this program reads version {}",
            file.display(),
            SCHEMA_VERSION + 1,
            SCHEMA_VERSION
        );
        for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["check"]] {
            let mut refused = command();
            refused.args(arguments).arg("--data-dir").arg(&data).stdin(Stdio::null());
            let refused = refused.output().unwrap();
            let said = String::from_utf8(refused.stderr).unwrap();
            assert!(!refused.status.success() && said.contains(&sentence), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            let after = content(&data);
            assert!(before.keys().eq(after.keys()), "{:?}", after.keys());
            assert!(before == after, "{arguments:?} changed a file");
        }
    }
}

async fn loses_nothing(archive: &str) {
    let mut recorded = Recorded::start(archive).await;
    assert_eq!(recorded.host.ready()["upgraded"], Value::Null);
    recorded.has_same_documents().await;
    recorded.submissions_are_remembered().await;
    recorded.streams_are_delivered_from_their_start().await;
    recorded.secrets_and_files_are_used().await;
    recorded.failed_jobs_have_their_inputs().await;
    recorded.waiting_jobs_run().await;
    recorded.pending_webhooks_arrive().await;
    recorded.credentials_are_sent().await;
    recorded.starts_again().await;
}

/// A host on a recorded directory, and the servers that the directory names.
struct Recorded {
    host: TestHost,
    expected: Expected,
    receiver: Receiver,
    registry: ScriptedServer,
}

impl Recorded {
    async fn start(archive: &str) -> Self {
        Self::start_with(archive, |data| unpack(archive, data)).await
    }

    /// Starts a host on the data directory that `prepare` writes to the given path.
    async fn start_with(archive: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self::start_further(archive, &[], prepare).await
    }

    /// The same with further arguments of `serve`.
    async fn start_further(archive: &str, further: &[String], prepare: impl FnOnce(&Path)) -> Self {
        let expected = archive::expected(archive);
        is_free(&expected.receiver).await;
        let receiver = Receiver::start_on(&expected.receiver, &["200 OK"]).await;
        // It receives the password, and has no images.
        let registry = ScriptedServer::start_on(&expected.registry, |_, head| {
            match head.to_lowercase().contains("authorization: basic") {
                true => Reply::with("404 Not Found", &[]),
                false => Reply::with("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"x\""]),
            }
        })
        .await;
        let arguments = [&arguments(&expected, expected.clock), further].concat();
        let host = TestHost::start_prepared(&arguments, prepare);
        Self { host, expected, receiver, registry }
    }

    async fn has_same_documents(&self) {
        let client = self.host.client();
        let differences = compare::differences(&client, &self.expected).await;
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }

    /// A submission with a recorded idempotency key gets the recorded answer.
    async fn submissions_are_remembered(&self) {
        let client = self.host.client();
        for Repeat { path, body, headers, answer, key } in &self.expected.repeats {
            let client = match key {
                Some(key) => client.with_key(&self.expected.keys[key]),
                None => client.clone(),
            };
            let submit = async |body: &str| {
                let mut request = client.request(Method::POST, path).body(body.to_owned());
                for (name, value) in headers {
                    request = request.header(name, value);
                }
                client.send(request).await
            };
            let repeated = submit(body).await;
            assert_eq!(repeated.headers["idempotent-replayed"], "true", "{repeated:?}");
            assert_eq!(repeated.ok(), *answer);
            submit(r#"{"input":{"op":"trap"}}"#).await.refused(422);
        }
    }

    /// How far a stream was delivered is not on the disk: each start delivers it again.
    async fn streams_are_delivered_from_their_start(&self) {
        let PartlyRead { endpoint, job, delivered } = &self.expected.secrets.partly_read;
        assert!((1..5).contains(delivered));
        let client = self.host.client();
        let page = client.stream(endpoint, job).await.ok();
        let outputs = page.as_array().unwrap().iter().map(|chunk| chunk["output"].clone());
        assert!(outputs.eq((0..5).map(|n| json!({ "i": n }))), "{page}");
        assert_eq!(client.stream(endpoint, job).await.ok(), json!([]));
    }

    async fn secrets_and_files_are_used(&self) {
        let client = self.host.client();
        let output = async |input: Value| client.finish("done", input).await["output"].clone();
        let Secrets { token, revoked_key, .. } = &self.expected.secrets;
        assert_eq!(output(json!({ "op": "env", "name": "TOKEN" })).await, json!({ "env": token }));
        assert_eq!(output(json!({ "op": "env", "name": "GRAIN" })).await, json!({ "env": "rye" }));
        let read = json!({ "op": "file", "file": { "do": "read", "path": "/data/flour" } });
        assert_eq!(output(read).await, json!("1;2;"));
        client.with_key(revoked_key).get("/v1/endpoints").await.refused(401);
    }

    /// A retry uses the recorded input, which is on the disk only.
    async fn failed_jobs_have_their_inputs(&self) {
        let client = self.host.client();
        let listed = client.get("/v2/done/requests?status=FAILED").await.ok();
        for job in listed["requests"].as_array().unwrap() {
            let job = job["id"].as_str().unwrap();
            let before = client.status("done", job).await.ok();
            client.retry("done", job).await.ok();
            let after = client.until("done", job, "FAILED").await;
            assert_eq!((&before["error"], &before["output"]), (&after["error"], &after["output"]));
            let retries = before["retries"].as_u64().unwrap_or(0);
            assert_eq!(after["retries"], retries + 1, "{after}");
        }
    }

    async fn waiting_jobs_run(&self) {
        let client = self.host.client();
        for endpoint in ["parked", "interrupted"] {
            let waiting = client.get(&client.path(endpoint, "requests?status=IN_QUEUE")).await.ok();
            let path = format!("/v1/endpoints/{endpoint}");
            client.patch(&path, &json!({ "workersMax": 4 })).await.ok();
            let waiting = waiting["requests"].as_array().unwrap();
            assert!(!waiting.is_empty(), "{endpoint}");
            let mut outputs = vec![];
            for job in waiting {
                let job = client.until(endpoint, job["id"].as_str().unwrap(), "COMPLETED").await;
                outputs.push(job["output"].to_string());
            }
            let contains = |text: &str| outputs.iter().any(|output| output.contains(text));
            match endpoint {
                "parked" => {
                    assert!(contains(&s3_digest()) && contains("wheat wheat"));
                    // One of them has a trace.
                    assert!(!contains(r#""traceParent":null"#), "{outputs:?}");
                }
                _ => assert!(contains(r#""slept":5000"#), "{outputs:?}"),
            }
        }
    }

    /// They have the recorded bytes, and signatures with all secrets of the last day.
    async fn pending_webhooks_arrive(&self) {
        self.host.advance(RETRY_INTERVAL_MS);
        let pending = &self.expected.pending_webhooks;
        let calls = self.receiver.until(pending.len()).await;
        let Secrets { old_webhook, new_webhook, .. } = &self.expected.secrets;
        for (path, Webhook { id, body }) in pending {
            let call = calls.iter().find(|call| call.line == format!("POST {path}")).unwrap();
            assert_eq!(
                (call.header("webhook-id"), &call.body),
                (id.as_str(), &body.clone().into())
            );
            let timestamp = call.header("webhook-timestamp").parse().unwrap();
            let expected = [new_webhook, old_webhook].map(|secret| {
                WebhookSecret::try_from(secret.clone()).unwrap().sign(id, timestamp, &call.body)
            });
            let found: Vec<_> = call.header("webhook-signature").split(' ').collect();
            // The third one is that of the endpoint's creation.
            assert_eq!(found.len(), 3, "{found:?}");
            assert_eq!(found[..2], expected);
        }
        let client = self.host.client();
        eventually("the deliveries to be recorded", async || {
            let log = client.get("/v1/endpoints/hooked/deliveries").await.ok();
            let is_pending = |entry: &Value| entry["state"] == "PENDING";
            (!log.as_array().unwrap().iter().any(is_pending)).then_some(())
        })
        .await;
    }

    /// The registry receives the recorded user name and password.
    async fn credentials_are_sent(&self) {
        let image = json!({ "imageName": format!("{}/mill:1", self.expected.registry) });
        let client = self.host.client();
        client.patch("/v1/templates/parked", &image).await.refused(400);
        let heads = self.registry.heads();
        let basic = format!("Basic {}", self.expected.secrets.basic);
        assert!(heads.iter().any(|head| head.contains(&basic)), "{heads:?}");
    }

    /// The directory is opened as one of this version, and the results expire in time.
    async fn starts_again(&mut self) {
        let endpoints = ["done", "parked", "interrupted", "hooked"];
        let before = statuses(&self.host.client(), &endpoints).await;
        self.host.ask_to_end();
        assert!(tokio::task::block_in_place(|| self.host.wait(PATIENCE)).success());
        let clock = self.expected.clock + RETRY_INTERVAL_MS;
        self.host.start_again_with(&arguments(&self.expected, clock));
        assert_eq!(self.host.ready()["upgraded"], Value::Null);
        assert_eq!(self.host.ready()["wasClean"], true);
        let client = self.host.client();
        assert_eq!(statuses(&client, &endpoints).await, before);
        self.host.advance(RETENTION_MS);
        eventually("all results to expire", async || {
            let mut jobs = before.iter().map(|job| (job["endpoint"].as_str(), job["id"].as_str()));
            let (Some(endpoint), Some(job)) = jobs.next().unwrap() else { panic!("{before:?}") };
            (client.status(endpoint, job).await.status == 404).then_some(())
        })
        .await;
        let log = self.host.log();
        assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    }
}

/// The output of a job that got the recorded `s3Config`.
fn s3_digest() -> String {
    HEXLOWER.encode(&Sha256::digest("id\nsecret-7f3b91\nbin\nhttps://s3.example"))
}

/// The documents of all jobs of these endpoints, with the name of the endpoint.
async fn statuses(client: &Client, endpoints: &[&str]) -> Vec<Value> {
    let mut found = vec![];
    for endpoint in endpoints {
        let listed = client.get(&client.path(endpoint, "requests?limit=1000")).await.ok();
        for job in listed["requests"].as_array().unwrap() {
            let mut job = client.status(endpoint, job["id"].as_str().unwrap()).await.ok();
            job["endpoint"] = json!(endpoint);
            found.push(job);
        }
    }
    assert!(found.len() > 50, "{}", found.len());
    found
}

/// The arguments of a host whose clock shows this time.
fn arguments(expected: &Expected, clock: u64) -> Vec<String> {
    let registry = format!("http://{}", expected.registry);
    let allowed = ["--webhook-allow", &expected.receiver, "--registry-allow", &registry];
    std::iter::once(format!("--manual-clock={clock}")).chain(allowed.map(str::to_owned)).collect()
}

/// Waits while another run of this test uses the addresses of the archive.
async fn is_free(address: &str) {
    eventually(&format!("{address} to be free"), async || TcpListener::bind(address).await.ok())
        .await;
}
