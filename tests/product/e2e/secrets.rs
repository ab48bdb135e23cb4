//! Stored secrets are not on disk in clear text, in no log at any level, and in no answer except
//! the one that shows them for the first time.

use gristmill_tests::{
    Answer, Client, Receiver, Reply, ScriptedServer, TestHost, files_without_keys, guests,
};
use serde_json::{Value, json};

/// `mill:password-7f3b91`, as a registry receives it.
const BASIC: &str = "bWlsbDpwYXNzd29yZC03ZjNiOTE=";

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// All secrets of the host, with their descriptions.
struct Secrets(Vec<(&'static str, String)>);

impl Secrets {
    fn are_nowhere_in(&self, place: &str, bytes: &[u8]) {
        for (what, text) in &self.0 {
            assert!(!holds(bytes, text), "the {what} is in {place}");
        }
    }

    /// Secrets that no answer may contain: an environment is shown to keys that may change it.
    fn are_not_told(&self, answer: &Answer) {
        for (what, text) in self.0.iter().filter(|(what, _)| !what.contains("environment")) {
            assert!(!answer.text.contains(text), "the {what} is in an answer: {answer:?}");
        }
    }
}

fn told_once(document: &Value, field: &str) -> String {
    let text = document[field].as_str().unwrap_or_else(|| panic!("no {field}: {document}"));
    secret_part(text)
}

/// The text without the common prefix of all keys (`gm_<id>_`) and webhook secrets (`whsec_`). The
/// secret of a key may have `_` in it.
fn secret_part(text: &str) -> String {
    text.splitn(3, '_').last().unwrap().to_owned()
}

/// A registry that receives the password and has no images.
async fn registry() -> ScriptedServer {
    ScriptedServer::start(|_, head| match head.to_lowercase().contains("authorization: basic") {
        true => Reply::with("404 Not Found", &[]),
        false => Reply::with("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"x\""]),
    })
    .await
}

/// Gives the host a secret of each kind, and makes it use each.
async fn entrust(host: &TestHost, registry: &ScriptedServer, receiver: &Receiver) -> Secrets {
    let (client, url) = (host.client(), receiver.url("/hook"));
    let own = |what: &str| format!("{what}-7f3b91");
    let mut secrets = vec![("admin's key", secret_part(host.admin_key()))];
    let mut keep = |what, text: String| {
        secrets.push((what, text.clone()));
        text
    };
    let settings = json!({
        "workersMax": 1,
        "env": { "TOKEN": keep("endpoint's environment", own("token")) },
        "templateEnv": { "GRAIN": keep("template's environment", own("grain")) },
    });
    let endpoint = host.deploy(&guests::playground(), "e", settings).await;
    let path = "/v1/endpoints/e/rotate-webhook-secret";
    for what in ["webhook secret before", "webhook secret"] {
        let rotated = client.post_empty(path).await.ok();
        keep(what, told_once(&rotated, "webhookSecret"));
    }
    let key = client.post("/v1/keys", &json!({ "name": "k", "scopes": ["manage"] })).await.ok();
    keep("API key", told_once(&key, "key"));
    let with_key = client.with_key(key["key"].as_str().unwrap());
    with_key.get("/v1/endpoints").await.ok();
    let wrong = format!("gm_aaaaaaaaaaaa_{}", keep("wrong key", own("guess")));
    client.with_key(&wrong).get("/v1/endpoints").await.refused(401);

    let password = keep("registry's password", own("password"));
    keep("registry's password as it is sent", BASIC.to_owned());
    let auth = json!({
        "name": "hub", "registry": registry.host(), "username": "mill", "password": password,
    });
    let auth = client.post("/v1/containerregistryauth", &auth).await.ok();
    let image = format!("{}/mill:1", registry.host());
    let template = json!({
        "name": "fetched", "imageName": image, "containerRegistryAuthId": auth["id"],
    });
    client.post("/v1/templates", &template).await.refused(400);
    assert!(registry.heads().len() > 1, "it was used");

    let s3 = json!({
        "accessId": "id", "accessSecret": keep("submission's credentials", own("s3")),
        "bucketName": "b", "endpointUrl": "https://s3.example",
    });
    let body =
        json!({ "input": { "op": "env", "name": "NOTHING" }, "s3Config": s3, "webhook": url });
    client.post(&client.path(&endpoint, "runsync"), &body).await.ok();
    receiver.until(1).await;
    // And a waiting job.
    client.patch("/v1/endpoints/e", &json!({ "workersMax": 0 })).await.ok();
    client.post(&client.path(&endpoint, "run"), &body).await.ok();

    // In the wrong field, where an error message might repeat it.
    let misplaced = keep("misplaced text", own("misplaced"));
    for (path, body) in [
        (
            "/v1/containerregistryauth",
            json!({ "name": "x", "username": "u", "password": [misplaced] }),
        ),
        ("/v1/endpoints", json!({ "templateId": "e", "env": misplaced })),
        ("/v1/templates", json!({ "name": "x", "imageName": "echo", "env": [misplaced] })),
        ("/v2/e/run", json!({ "input": {}, "s3Config": misplaced })),
    ] {
        client.post(path, &body).await.refused(400);
    }
    Secrets(secrets)
}

/// Every list and document.
async fn answers(client: &Client) -> Vec<Answer> {
    let mut answers = vec![];
    for path in [
        "/v1/endpoints",
        "/v1/endpoints/e",
        "/v1/endpoints/e/releases",
        "/v1/endpoints/e/deliveries",
        "/v1/endpoints/e/logs",
        "/v1/templates?includeEndpointBoundTemplates=true",
        "/v1/handlers",
        "/v1/keys",
        "/v1/containerregistryauth",
        "/v1/networkvolumes",
        "/v1/billing/endpoints",
        "/v2/e/requests",
        "/v2/e/health",
        "/metrics",
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answers.push(answer);
    }
    let jobs = client.get("/v2/e/requests").await.ok();
    for job in jobs["requests"].as_array().unwrap() {
        answers.push(client.status("e", job["id"].as_str().unwrap()).await);
    }
    answers
}

#[tokio::test]
async fn secrets_are_on_no_disk_in_no_log_and_in_no_list() {
    let (registry, receiver) = (registry().await, Receiver::start(&["200 OK"]).await);
    let (registries, webhooks) = (format!("http://{}", registry.host()), receiver.host());
    let arguments =
        ["--log", "trace", "--registry-allow", &registries, "--webhook-allow", &webhooks];
    let mut host = TestHost::start_with(&arguments);
    let secrets = entrust(&host, &registry, &receiver).await;
    for answer in answers(&host.client()).await {
        secrets.are_not_told(&answer);
    }
    let backup = host.client().get("/v1/backup").await;
    assert_eq!(backup.status, 200, "{}", backup.text);
    secrets.are_nowhere_in("a backup", backup.text.as_bytes());
    host.kill9();
    // The next start moves the journal's content to the tables.
    for state in ["after a kill", "after a start"] {
        let found = files_without_keys(&host.data_dir());
        assert!(found.len() > 5 && found.iter().any(|(_, bytes)| holds(bytes, "NOTHING")));
        for (path, bytes) in &found {
            secrets.are_nowhere_in(&format!("{} {state}", path.display()), bytes);
        }
        host.start_again();
    }
    let log = host.log();
    assert!(log.contains("TRACE"), "as much as there is");
    secrets.are_nowhere_in("the log", log.as_bytes());
    let shown = host.client().get("/v1/endpoints/e").await.ok();
    assert_eq!(shown["env"]["TOKEN"], "token-7f3b91", "and it is all there");
}
