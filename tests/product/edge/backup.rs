//! Backups of a working host, and their restoration.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use gristmill_core::backup::UNFINISHED;
use gristmill_tests::http2::{Http2, INITIAL_WINDOW_SIZE};
use gristmill_tests::{Client, Receiver, TestHost, command, eventually, guests};
use reqwest::Method;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// Runs a command with the host's address and admin key.
pub(crate) async fn gristmill(host: &TestHost, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::from(command());
    command.env("GRISTMILL_URL", host.url()).env("GRISTMILL_API_KEY", host.admin_key());
    command.args(arguments).kill_on_drop(true).output().await.unwrap()
}

pub(crate) fn assert_done(output: &Output) {
    assert!(output.status.success(), "{}", said(output));
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) async fn back_up(host: &TestHost, options: &[&str]) -> PathBuf {
    let file = host.scratch().join("backup.tar");
    let arguments = [&["backup", "--output", file.to_str().unwrap()], options].concat();
    assert_done(&gristmill(host, &arguments).await);
    file
}

pub(crate) async fn restore(host: &TestHost, backup: &Path, data_dir: &Path) -> Output {
    let [backup, data_dir] = [backup, data_dir].map(|path| path.to_str().unwrap());
    gristmill(host, &["restore", backup, "--data-dir", data_dir]).await
}

/// Ends the host, and starts it with the backup.
async fn go_back(host: &mut TestHost, backup: &Path) {
    host.kill9();
    fs::rename(host.data_dir(), host.scratch().join("lost")).unwrap();
    assert_done(&restore(host, backup, &host.data_dir()).await);
    host.start_again();
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Jobs with their numbers, in the order of their acknowledgement.
type Acknowledged = Arc<Mutex<Vec<(String, u64)>>>;

fn input(number: u64) -> Value {
    // Every tenth is large enough to stay in the journal's files.
    let text = "grain ".repeat(if number.is_multiple_of(10) { 20_000 } else { 2 });
    json!({ "op": "echo", "value": [number, text] })
}

async fn submit_without_end(client: Client, jobs: Acknowledged, from: u64, stop: Arc<AtomicBool>) {
    for number in (from..).step_by(4) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let job = client.submit("work", input(number)).await;
        jobs.lock().unwrap().push((job, number));
        // Below the rate limits of the endpoint.
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_host_has_all_acknowledged_changes_and_continues() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let mut host = TestHost::start_with(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    let env = json!({ "workersMax": 4, "env": { "TOKEN": "token-of-the-endpoint" } });
    host.deploy(&guests::playground(), "work", env).await;
    host.deploy(&guests::echo(), "parked", json!({ "workersMax": 0 })).await;
    let made = json!({ "name": "reader", "scopes": ["read"], "endpoints": ["work"] });
    let made = client.post("/v1/keys", &made).await.ok();
    let endpoint = client.get("/v1/endpoints/parked").await.ok();
    let streamed =
        client.finish("work", json!({ "op": "stream", "count": 3, "delay_ms": 1 })).await;
    let failed = client.finish("work", json!({ "op": "fail", "message": "as asked" })).await;
    let parked = json!({ "input": { "grain": 1 }, "webhook": receiver.url("/ended") });
    let parked = client.post("/v2/parked/run", &parked).await.ok();
    let parked = parked["id"].as_str().unwrap();

    let (jobs, stop) = (Acknowledged::default(), Arc::new(AtomicBool::new(false)));
    let submitters: Vec<_> = (0..4)
        .map(|from| {
            let (client, jobs, stop) = (host.client(), jobs.clone(), stop.clone());
            tokio::spawn(submit_without_end(client, jobs, from, stop))
        })
        .collect();
    let submitted = async |count| Some(jobs.lock().unwrap().clone()).filter(|it| it.len() >= count);
    let before = eventually("jobs to be submitted", async || submitted(100).await).await;
    let backup = back_up(&host, &["--with-secrets-key"]).await;
    eventually("more jobs", async || submitted(before.len() + 100).await).await;
    stop.store(true, Ordering::Relaxed);
    for submitter in submitters {
        submitter.await.unwrap();
    }

    go_back(&mut host, &backup).await;
    let client = host.client();
    for (job, number) in &before {
        let document = client.finished("work", job).await;
        assert_eq!(document["output"]["echo"], input(*number)["value"], "{number}");
    }
    for old in [&streamed, &failed] {
        let document = client.status("work", old["id"].as_str().unwrap()).await.ok();
        assert_eq!(document, *old);
    }
    let chunks = client.stream("work", streamed["id"].as_str().unwrap()).await.ok();
    assert_eq!(chunks.as_array().map(Vec::len), Some(3), "{chunks}");
    let reader = client.with_key(made["key"].as_str().unwrap());
    reader.status("work", failed["id"].as_str().unwrap()).await.ok();
    reader.run("work", json!({})).await.refused(401);
    assert_eq!(client.get("/v1/endpoints/parked").await.ok(), endpoint);
    let work = client.get("/v1/endpoints/work").await.ok();
    assert_eq!(work["env"]["TOKEN"], "token-of-the-endpoint");

    // Waiting jobs run, with a handler that was never uploaded to this directory.
    assert_eq!(client.status("parked", parked).await.ok()["status"], "IN_QUEUE");
    client.patch("/v1/endpoints/parked", &json!({ "workersMax": 1 })).await.ok();
    let document = client.finished("parked", parked).await;
    assert_eq!(document["output"], json!({ "grain": 1 }));
    let call = &receiver.until(1).await[0];
    assert_eq!((call.line.as_str(), &call.json()["id"]), ("POST /ended", &json!(parked)));
    assert_eq!(client.finish("work", input(7)).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_backup_without_the_key_reveals_no_secret() {
    let mut host = TestHost::start();
    let settings = json!({
        "workersMax": 0,
        "env": { "TOKEN": "token-of-the-endpoint" },
        "templateEnv": { "TOKEN": "token-of-the-template" },
    });
    host.deploy(&guests::echo(), "parked", settings).await;
    let client = host.client();
    let endpoint = client.post_empty("/v1/endpoints/parked/rotate-webhook-secret").await.ok();
    let webhook_secret = endpoint["webhookSecret"].as_str().unwrap();
    let made = client.post("/v1/keys", &json!({ "name": "k", "scopes": ["read"] })).await.ok();
    let s3 = json!({
        "accessId": "id-of-the-submission", "accessSecret": "secret-of-the-submission",
        "bucketName": "b", "endpointUrl": "https://s3.example",
    });
    let body = json!({ "input": { "marker": "the-input-itself" }, "s3Config": s3 });
    let job = client.post("/v2/parked/run", &body).await.ok();
    let secrets_key = fs::read(host.data_dir().join("secrets.key")).unwrap();
    let secrets_key = String::from_utf8(secrets_key).unwrap();

    let backup = back_up(&host, &[]).await;
    let bytes = fs::read(&backup).unwrap();
    assert!(holds(&bytes, "the-input-itself"), "what is no secret is in clear");
    let secrets = [
        "token-of-the-endpoint",
        "token-of-the-template",
        "secret-of-the-submission",
        "id-of-the-submission",
        webhook_secret,
        webhook_secret.strip_prefix("whsec_").unwrap(),
        made["key"].as_str().unwrap(),
        host.admin_key(),
        secrets_key.trim(),
    ];
    for secret in secrets {
        assert!(!holds(&bytes, secret), "{secret}");
    }
    let with_key = back_up(&host, &["--with-secrets-key"]).await;
    assert!(holds(&fs::read(&with_key).unwrap(), secrets_key.trim()));

    // Only the owner can read the backup and the restored files.
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&with_key), 0o600);
    fs::write(&backup, bytes).unwrap();
    host.kill9();
    fs::rename(host.data_dir(), host.scratch().join("lost")).unwrap();
    let restored = restore(&host, &backup, &host.data_dir()).await;
    assert_done(&restored);
    assert!(said(&restored).contains("secrets.key"), "{}", said(&restored));
    let data_dir = host.data_dir();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir.to_str().unwrap()];
    let refused = gristmill(&host, &arguments).await;
    assert!(!refused.status.success() && said(&refused).contains("secrets.key"), "{refused:?}");
    fs::copy(host.scratch().join("lost/secrets.key"), data_dir.join("secrets.key")).unwrap();
    host.start_again();
    let mut folders = vec![data_dir];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{folder:?}");
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{path:?}");
                files += 1;
            }
        }
    }
    assert!(files >= 4, "{files}");
    let id = job["id"].as_str().unwrap();
    assert_eq!(host.client().status("parked", id).await.ok()["status"], "IN_QUEUE");
}

#[tokio::test]
async fn an_incomplete_backup_is_not_restored() {
    let host = TestHost::start();
    host.deploy(&guests::echo(), "e", json!({})).await;
    host.client().finish("e", json!({ "grain": 1 })).await;
    let backup = back_up(&host, &[]).await;
    let bytes = fs::read(&backup).unwrap();
    let fails = async |content: &[u8], word: &str| {
        let (file, to) = (host.scratch().join("wrong.tar"), host.scratch().join("restored"));
        fs::write(&file, content).unwrap();
        let output = restore(&host, &file, &to).await;
        assert_eq!(output.status.code(), Some(1), "{word}: {}", said(&output));
        assert!(said(&output).contains(word), "{word}: {}", said(&output));
        // An empty directory may have been there before.
        let left = fs::read_dir(&to).map_or(0, |entries| entries.count());
        assert!(left == 0, "{word}: {left} files are left");
        to
    };
    for parts in 1..4 {
        let to = fails(&bytes[..bytes.len() * parts / 4], "backup").await;
        assert!(!to.exists(), "the directory is left");
    }
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fails(&flipped, "checksum").await;
    fails(b"this is no backup at all", "backup").await;
    fails(b"", "incomplete").await;

    // The mark of an unfinished directory is removed last: a host that starts earlier finds the
    // mark.
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    let own = host.scratch().join("restored");
    fs::DirBuilder::new().mode(0o700).create(&own).unwrap();
    inotify::add_watch(&watch, &own, WatchFlags::DELETE).unwrap();
    fails(&bytes[..bytes.len() / 2], "backup").await;
    let mut buffer = [MaybeUninit::uninit(); 4_096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let mut removed = vec![];
    while let Ok(event) = events.next() {
        removed.extend(event.file_name().map(|name| name.to_str().unwrap().to_owned()));
    }
    assert_eq!(removed.len(), 2, "{removed:?}");
    assert!(removed[0].starts_with(".restore-") && removed[1] == UNFINISHED, "{removed:?}");
    assert!(own.exists(), "it was there before");

    let running = restore(&host, &backup, &host.data_dir()).await;
    assert_eq!(running.status.code(), Some(1));
    assert!(said(&running).contains("is not empty"), "{}", said(&running));
    let missing = restore(&host, &host.scratch().join("none"), &host.scratch().join("new")).await;
    assert!(said(&missing).contains("cannot read"), "{}", said(&missing));
    assert!(!host.scratch().join("new").exists());

    // A failed backup keeps the previous file.
    let file = backup.to_str().unwrap();
    let wrong = ["backup", "--output", file, "--api-key", "gm_aaaaaaaaaaaa_wrong"];
    assert_eq!(gristmill(&host, &wrong).await.status.code(), Some(1));
    assert!(fs::read(&backup).unwrap() == bytes);
    assert!(!host.scratch().join("backup.tar.part").exists());
}

#[tokio::test]
async fn one_backup_runs_at_a_time_and_ends_with_its_reader() {
    let host = TestHost::start();
    host.deploy(&guests::echo(), "parked", json!({ "workersMax": 0 })).await;
    let client = host.client();
    // More bytes than connections buffer.
    for _ in 0..4 {
        client.submit("parked", json!({ "text": "x".repeat(8 << 20) })).await;
    }
    let reader = client.request(Method::GET, "/v1/backup").send().await.unwrap();
    assert_eq!(reader.status(), 200);
    assert_eq!(reader.headers()["content-type"], "application/x-tar");
    let refused = client.get("/v1/backup").await.refused(503);
    assert!(refused.contains("another backup"), "{refused}");
    let output = host.scratch().join("second.tar");
    let second = gristmill(&host, &["backup", "--output", output.to_str().unwrap()]).await;
    assert!(said(&second).contains("another backup"), "{}", said(&second));
    assert!(!output.exists());
    // Work continues.
    client.submit("parked", json!({ "text": "y".repeat(1 << 20) })).await;
    drop(reader);
    let backup = back_up(&host, &[]).await;
    assert!(fs::metadata(&backup).unwrap().size() > 32 << 20);
    client.get("/v1/backup?secretsKey=perhaps").await.refused(400);
}

/// The archive is small, so that all of it waits in the host for a client that takes none of it.
#[tokio::test]
async fn a_backup_that_no_client_has_received_is_not_the_last_one() {
    let host = TestHost::start();
    let client = host.client();
    let last = async || client.get("/v1/system").await.ok().get("lastBackupAt").cloned();
    let stream = TcpStream::connect(host.address()).await.unwrap();
    let mut stalled = Http2::begin_with(stream, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    let authorization = format!("Bearer {}", host.admin_key());
    stalled.get(1, "/v1/backup", &[("authorization", &authorization)]).await;
    assert_eq!(stalled.status_of(1).await, 200);
    // One backup is written at a time; the answer to HEAD has no archive that a client could
    // receive.
    eventually("the archive to be written", async || {
        let answer = client.request(Method::HEAD, "/v1/backup").send().await.unwrap();
        (answer.status() == 200).then_some(())
    })
    .await;
    assert_eq!(last().await, None);
    drop(stalled);
    back_up(&host, &[]).await;
    assert!(last().await.is_some());
}

#[tokio::test]
async fn a_host_that_stops_does_not_wait_for_a_backup() {
    let mut host = TestHost::start_with(&["--drain-timeout", "1"]);
    host.deploy(&guests::echo(), "parked", json!({ "workersMax": 0 })).await;
    for _ in 0..4 {
        host.client().submit("parked", json!({ "text": "x".repeat(8 << 20) })).await;
    }
    let reader = host.client().request(Method::GET, "/v1/backup").send().await.unwrap();
    host.ask_to_end();
    assert!(host.wait(gristmill_tests::PATIENCE).success());
    assert!(reader.bytes().await.is_err(), "the archive is not whole");
    host.start_again();
    assert_eq!(host.client().health("parked").await["jobs"]["inQueue"], 4);
}
