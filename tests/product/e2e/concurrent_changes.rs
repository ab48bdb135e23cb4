//! The same call many times at once: unique objects are created once, and all other calls are
//! refused.

use std::collections::BTreeSet;

use futures::future::join_all;
use gristmill_tests::{Answer, Client, TestHost, guests};
use reqwest::Method;
use serde_json::{Value, json};

use crate::handlers::{echo, variant};

/// Calls at one time.
const CALLS: usize = 16;

/// All answers to `CALLS` concurrent calls with these bodies.
async fn at_once(
    client: &Client,
    method: &Method,
    path: &str,
    body: impl Fn(usize) -> Value,
) -> Vec<Answer> {
    let call = |number| client.request(method.clone(), path).json(&body(number));
    join_all((0..CALLS).map(|number| client.send(call(number)))).await
}

/// Exactly one call succeeded; the others were refused with this status. Returns the document.
fn only_one(answers: &[Answer], refusal: u16, word: &str) -> Value {
    let (done, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(done.len(), 1, "{answers:?}");
    for answer in refused {
        assert!(answer.refused(refusal).contains(word), "{answer:?}");
    }
    done[0].ok()
}

async fn listed(client: &Client, path: &str, field: &str, value: &str) -> usize {
    let list = client.get(path).await.ok();
    list.as_array().unwrap().iter().filter(|thing| thing[field] == value).count()
}

#[tokio::test]
async fn one_of_many_calls_creates_a_unique_object() {
    let host = TestHost::start();
    let client = host.client();
    host.upload("echo:latest", echo("once")).await.ok();
    let template = |id: &str, name: &str| json!({ "id": id, "name": name, "imageName": "echo" });
    let post = Method::POST;

    // By its id, and by its name.
    let same_id = |number: usize| template("t", &format!("t{number}"));
    let made = only_one(&at_once(&client, &post, "/v1/templates", same_id).await, 400, "`t`");
    assert_eq!(client.get("/v1/templates/t").await.ok(), made);
    let same_name = |number: usize| template(&format!("n{number}"), "named");
    only_one(&at_once(&client, &post, "/v1/templates", same_name).await, 400, "`named`");
    assert_eq!(listed(&client, "/v1/templates", "name", "named").await, 1);

    let same_id = |number: usize| json!({ "id": "e", "templateId": "t", "workersMax": number });
    let made = only_one(&at_once(&client, &post, "/v1/endpoints", same_id).await, 400, "`e`");
    let shown = client.get("/v1/endpoints/e").await.ok();
    assert_eq!((&shown["workersMax"], &shown["version"]), (&made["workersMax"], &json!(1)));

    let auth = |number: usize| json!({ "name": "hub", "username": "mill", "password": format!("p{number}") });
    let auths = "/v1/containerregistryauth";
    only_one(&at_once(&client, &post, auths, auth).await, 400, "`hub`");
    assert_eq!(listed(&client, auths, "name", "hub").await, 1);
}

/// Names of volumes and keys need not be unique: each call creates one.
#[tokio::test]
async fn objects_that_may_share_a_name_are_created_by_each_call() {
    let host = TestHost::start();
    let client = host.client();
    for (path, body) in [
        ("/v1/networkvolumes", json!({ "name": "twin", "size": 1 })),
        ("/v1/keys", json!({ "name": "twin", "scopes": ["read"] })),
    ] {
        let answers = at_once(&client, &Method::POST, path, |_| body.clone()).await;
        let ids: BTreeSet<_> = answers.iter().map(|answer| answer.ok()["id"].to_string()).collect();
        assert_eq!((ids.len(), listed(&client, path, "name", "twin").await), (CALLS, CALLS));
    }
}

#[tokio::test]
async fn one_of_many_deletes_and_no_change_is_lost() {
    let host = TestHost::start();
    let client = host.client();
    host.deploy(&guests::echo(), "e", json!({ "workersMax": 0 })).await;
    // Each call changes another field: all changes are present afterwards, and each was counted.
    let fields = [
        ("idleTimeout", json!(77)),
        ("memoryMib", json!(99)),
        ("maxWaitingJobs", json!(55)),
        ("executionTimeoutMs", json!(44_000)),
        ("env", json!({ "GRAIN": "rye" })),
        ("name", json!("mill")),
    ];
    let change = |number: usize| {
        let (field, value) = &fields[number % fields.len()];
        json!({ *field: value })
    };
    for answer in at_once(&client, &Method::PATCH, "/v1/endpoints/e", change).await {
        answer.ok();
    }
    let shown = client.get("/v1/endpoints/e").await.ok();
    for (field, value) in &fields {
        assert_eq!(&shown[field], value, "{shown}");
    }
    assert_eq!(shown["version"], 1 + fields.len(), "a change that changes nothing is none");

    let volume = json!({ "name": "v", "size": 1 });
    let volume = client.post("/v1/networkvolumes", &volume).await.ok();
    let key = client.post("/v1/keys", &json!({ "name": "k", "scopes": ["read"] })).await.ok();
    let auth = json!({ "name": "a", "username": "u", "password": "p" });
    let auth = client.post("/v1/containerregistryauth", &auth).await.ok();
    let id = |document: &Value| document["id"].as_str().unwrap().to_owned();
    for path in [
        "/v1/endpoints/e".to_owned(),
        "/v1/templates/e".to_owned(),
        "/v1/handlers/echo:latest".to_owned(),
        format!("/v1/networkvolumes/{}", id(&volume)),
        format!("/v1/keys/{}", id(&key)),
        format!("/v1/containerregistryauth/{}", id(&auth)),
    ] {
        let answers = join_all((0..CALLS).map(|_| client.delete(&path))).await;
        let gone = answers.iter().filter(|answer| answer.status == 204).count();
        assert_eq!(gone, 1, "{path}: {answers:?}");
        for answer in answers.iter().filter(|answer| answer.status != 204) {
            answer.refused(404);
        }
    }
}

/// Uploads of different bytes to one name: each answer describes its own upload, the last one
/// stays, and the others' components are deleted.
#[tokio::test]
async fn of_many_uploads_to_one_name_one_stays_whole() {
    const UPLOADS: usize = 6;
    let host = TestHost::start();
    let client = host.client();
    let playground = std::fs::read(guests::playground()).unwrap();
    let upload = async |number: usize| {
        // Two different handlers, in variants, and the same one from two callers.
        let number = number / 2;
        let bytes = if number.is_multiple_of(2) {
            variant(&playground, &format!("n{number}"))
        } else {
            echo(&format!("n{number}"))
        };
        host.upload("mill:1", bytes).await.ok()
    };
    let told = join_all((0..UPLOADS).map(upload)).await;
    let digests: BTreeSet<_> = told.iter().map(|document| document["sha256"].to_string()).collect();
    assert_eq!(digests.len(), UPLOADS / 2, "{told:?}");
    let shown = client.get("/v1/handlers/mill:1").await.ok();
    assert!(told.iter().any(|document| document["sha256"] == shown["sha256"]), "{shown}");
    let stays = format!("{}.wasm", shown["sha256"].as_str().unwrap());
    let stored: Vec<_> = std::fs::read_dir(host.data_dir().join("components"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert_eq!(stored, [&*stays], "and nothing of the others");

    let endpoint = host.deploy_image("mill:1", "e", json!({})).await;
    let input = json!({ "op": "echo", "value": 1 });
    let output = client.finish(&endpoint, input.clone()).await["output"].clone();
    assert!(output == input || output == json!({ "echo": 1 }), "{output}");
}
