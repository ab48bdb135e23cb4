//! The end of the active host: another one becomes active, and nothing acknowledged is lost.

use std::time::{Duration, Instant};

use gristmill_tests::{Client, PATIENCE, Receiver, TestHost, eventually, guests};
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hosts::{finished, first, further, signal, sleep, until_active};
use crate::load::Load;
use crate::postgres::Database;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_acknowledged_is_lost_when_the_active_host_is_killed() {
    const KILLS: usize = 3;
    let Some(database) = Database::new() else { return };
    let receiver = Receiver::start(&["200 OK"]).await;
    let allowed = ["--webhook-allow".to_owned(), receiver.host()];
    let start = |key: Option<&str>| {
        let arguments = [&crate::hosts::arguments(&database)[..], &allowed].concat();
        match key {
            None => TestHost::start_with(&arguments),
            Some(key) => TestHost::join(&arguments, key),
        }
    };
    let mut active = start(None);
    let key = active.admin_key().to_owned();
    let mut other = start(Some(&key));
    active.deploy(&guests::playground(), "play", json!({ "workersMax": 4 })).await;
    let clients = vec![active.client(), other.client()];
    let load = Load::start(clients, &receiver.url("/hook"));
    for kill in 1..=KILLS {
        load.progress(100).await;
        active.kill9();
        let begun = Instant::now();
        until_active(&other).await;
        println!("kill {kill}: the other host was ready after {:?}", begun.elapsed());
        load.progress(20).await;
        // A job that loses its host three times is FAILED, so the jobs that this kill has
        // interrupted end first.
        for job in load.acknowledged().values() {
            finished(&[other.client()], "play", job).await;
        }
        active = other;
        other = start(Some(&key));
        load.use_hosts(vec![active.client(), other.client()]);
    }
    let jobs = load.end(&receiver).await;
    println!("{jobs} jobs were seen through {KILLS} kills");
}

/// Docs say which data another host does not take over. Everything else is the subject of the other
/// tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_and_sessions_stay_with_the_host_that_had_them() {
    let Some(database) = Database::new() else { return };
    let mut one = first(&database);
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 1 })).await;
    let client = two.client();
    let log = async |line: &str| {
        client.finish("play", json!({ "op": "log", "message": line })).await;
        let found = eventually("the log line", async || {
            let found = client.get("/v1/endpoints/play/logs").await.ok();
            found.to_string().contains(line).then_some(found)
        });
        found.await.to_string()
    };
    log("before").await;
    let login = client.with_authorization(None).request(Method::POST, "/console/session");
    let login = login.header("x-gristmill-console", "1").json(&json!({ "key": one.admin_key() }));
    let login = client.send(login).await;
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let mark = login.ok()["mark"].as_str().unwrap().to_owned();
    let as_page = async || {
        let call = client.with_authorization(None).request(Method::GET, "/v1/endpoints");
        let call = call.header("x-gristmill-console", &mark).header("cookie", &cookie);
        client.send(call.header("sec-fetch-site", "same-origin")).await.status
    };
    assert_eq!(as_page().await, 200);

    one.kill9();
    until_active(&two).await;
    assert_eq!(as_page().await, 401, "the page logs in again");
    assert!(!log("after").await.contains("before"), "the line is on the disk of the other host");
    assert!(two.client().get("/v1/endpoints/play").await.ok()["id"] == "play");
}

/// The submissions in the charts of an endpoint.
async fn charted(client: &Client) -> u64 {
    let series = client.get("/v1/endpoints/play/series?window=15m").await.ok();
    let points = series["points"].as_array().unwrap();
    points.iter().map(|point| point["submitted"].as_u64().unwrap()).sum()
}

/// What the page says about charts, uploads and progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_uploads_and_progress_end_with_the_active_host() {
    let Some(database) = Database::new() else { return };
    let mut one = first(&database);
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 1 })).await;
    one.deploy(&guests::playground(), "slow", json!({ "workersMax": 1 })).await;
    let client = two.client();
    let progress = json!({ "op": "progress", "steps": 1, "delay_ms": 600_000 });
    let job = client.submit("slow", progress).await;
    eventually("the progress", async || {
        let document = client.status("slow", &job).await.ok();
        (document["output"] == json!({ "progress": 1 })).then_some(())
    })
    .await;
    // The job that has begun continues, and begins on no other host.
    client.patch("/v1/endpoints/slow", &json!({ "workersMax": 0 })).await.ok();
    let document = client.until("slow", &job, "IN_PROGRESS").await;
    assert_eq!(document["output"], json!({ "progress": 1 }), "{document}");
    let upload = client.post_empty("/v2/mill/blobs/uploads/").await;
    assert_eq!(upload.status, 202, "{upload:?}");
    let upload = upload.header("location").unwrap();
    assert_eq!(client.get(upload).await.status, 204);
    for value in 0..3 {
        client.finish("play", json!({ "op": "echo", "value": value })).await;
    }
    eventually("the charts", async || (charted(&client).await == 3).then_some(())).await;

    one.kill9();
    until_active(&two).await;
    assert_eq!(charted(&client).await, 0);
    assert_eq!(client.get(upload).await.status, 404);
    let document = client.until("slow", &job, "IN_QUEUE").await;
    assert_eq!(document.get("output"), None, "{document}");
    // All of them begin again.
    let upload = client.post_empty("/v2/mill/blobs/uploads/").await;
    assert_eq!(client.get(upload.header("location").unwrap()).await.status, 204);
    client.finish("play", json!({ "op": "echo" })).await;
    eventually("the charts", async || (charted(&client).await == 1).then_some(())).await;
}

/// Callers and their bills are not those of a host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_usage_outlive_the_active_host() {
    let Some(database) = Database::new() else { return };
    let mut one = first(&database);
    let two = further(&database, &one);
    let client = two.client();
    let key = async |name: &str| {
        let new = json!({ "name": name, "owner": "miller", "scopes": ["manage", "submit"] });
        client.post("/v1/keys", &new).await.ok()
    };
    let (kept, deleted) = (key("kept").await, key("deleted").await);
    let [of_kept, of_deleted] =
        [&kept, &deleted].map(|key| client.with_key(key["key"].as_str().unwrap()));
    let path = format!("/v1/keys/{}", deleted["id"].as_str().unwrap());
    assert_eq!(client.delete(&path).await.status, 204);
    of_deleted.get("/v1/endpoints").await.refused(401);
    let bytes = std::fs::read(guests::playground()).unwrap();
    of_kept.upload("mill:1", bytes).await.ok();
    let template = json!({ "id": "mine", "name": "mine", "imageName": "mill:1" });
    of_kept.post("/v1/templates", &template).await.ok();
    of_kept.post("/v1/endpoints", &json!({ "id": "mine", "templateId": "mine" })).await.ok();
    for value in 0..5 {
        of_kept.finish("mine", json!({ "op": "echo", "value": value })).await;
    }
    let keys = client.get("/v1/keys").await.ok();
    let bill = of_kept.get("/v1/billing/endpoints?bucketSize=year").await.ok();
    assert_eq!(bill[0]["jobs"], 5, "{bill}");
    assert!(bill[0]["fuel"].as_u64().unwrap() > 0, "{bill}");

    one.kill9();
    until_active(&two).await;
    assert_eq!(client.get("/v1/keys").await.ok(), keys);
    of_deleted.get("/v1/endpoints").await.refused(401);
    assert_eq!(of_kept.get("/v1/billing/endpoints?bucketSize=year").await.ok(), bill);
    // The next jobs are added to the same record.
    of_kept.finish("mine", json!({ "op": "echo" })).await;
    let more = of_kept.get("/v1/billing/endpoints?bucketSize=year").await.ok();
    assert_eq!((&more[0]["jobs"], more.as_array().unwrap().len()), (&json!(6), 1), "{more}");
}

/// The active host is paused for long enough that it is replaced. When it continues, it must not
/// answer from its memory, and ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_host_is_replaced_and_does_not_answer_when_it_continues() {
    let Some(database) = Database::new() else { return };
    let mut one = first(&database);
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 1 })).await;
    let stale = one.client().submit("play", sleep(60_000, 1)).await;
    one.client().until("play", &stale, "IN_PROGRESS").await;
    signal(&one, Signal::STOP);
    let paused_at = Instant::now();
    until_active(&two).await;
    println!("the other host was ready after {:?}", paused_at.elapsed());
    let client = two.client();
    assert_eq!(client.cancel("play", &stale).await.status, 200);
    let document = client.finish("play", json!({ "op": "echo", "value": 2 })).await;
    assert_eq!(document["output"], json!({ "echo": 2 }));
    let pause = Duration::from_secs(20).saturating_sub(paused_at.elapsed());
    tokio::time::sleep(pause).await;

    // Calls wait in the paused host's backlog, and more follow while it ends.
    let address = one.client();
    let path = address.path("play", &format!("status/{stale}"));
    let early = {
        let (address, path) = (address.clone(), path.clone());
        tokio::spawn(async move { address.try_send(address.request(Method::GET, &path)).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    signal(&one, Signal::CONT);
    let deadline = Instant::now() + PATIENCE;
    let mut last = early.await.unwrap();
    while let Ok(answer) = last {
        let current = answer.status == 503
            || (answer.status == 200 && answer.json()["status"] == "CANCELLED");
        assert!(current, "the former active host has answered from its memory: {answer:?}");
        assert!(Instant::now() < deadline, "the former active host does not end");
        last = address.try_send(address.request(Method::GET, &path)).await;
    }
    let status = tokio::task::block_in_place(|| one.wait(PATIENCE));
    assert_eq!(status.code(), Some(1), "{}", one.log());
    assert!(one.log().contains("another host has taken over the database"), "{}", one.log());
    // Its supervisor starts it again, and it stands by.
    one.start_again();
    assert_eq!(one.ready()["role"], "standby");
    let document: Value = one.client().status("play", &stale).await.ok();
    assert_eq!(document["status"], "CANCELLED");
}
