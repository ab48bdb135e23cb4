//! The documents of the management API.

use std::fs;

use gristmill_tests::{Receiver, eventually, guests};
use reqwest::Method;
use serde_json::{Value, json};

use super::{check, host};

#[tokio::test]
async fn handlers_templates_and_endpoints() {
    let host = host(&[]);
    let client = host.client();
    let component = fs::read(guests::echo()).unwrap();
    check("handler-put", &client.upload("echo:latest", component).await);
    check("handler", &client.get("/v1/handlers/echo:latest").await);
    check("handlers", &client.get("/v1/handlers").await);
    let template = json!({ "id": "flour", "name": "flour", "imageName": "echo:latest" });
    check("template-post", &client.post("/v1/templates", &template).await);
    let all = json!({
        "id": "all", "name": "all", "imageName": "echo:latest", "env": { "GRAIN": "rye" },
        "dockerEntrypoint": ["a"], "dockerStartCmd": ["b"], "containerDiskInGb": 2, "readme": "# Flour",
    });
    check("template-with-all-fields", &client.post("/v1/templates", &all).await);
    check("template", &client.get("/v1/templates/flour").await);
    check("template-patch", &client.patch("/v1/templates/flour", &json!({ "name": "meal" })).await);
    check("templates", &client.get("/v1/templates").await);

    let endpoint = json!({ "id": "mill", "templateId": "flour" });
    check("endpoint-post", &client.post("/v1/endpoints", &endpoint).await);
    let all = json!({
        "id": "all", "name": "All", "templateId": "all", "workersMin": 1, "workersMax": 4, "paused": true,
        "idleTimeout": 9, "scalerType": "REQUEST_COUNT", "scalerValue": 2, "executionTimeoutMs": 60_000,
        "env": { "GRAIN": "rye" }, "allowedHosts": ["api.example", "*.mill.example"],
        "memoryMib": 64, "maxFuel": 1_000_000, "metering": "fuel", "maxWaitingJobs": 100,
        "reuse": { "maxJobs": 9, "maxIdle": 60 },
        "retry": { "maxAttempts": 4, "timeouts": true },
        "retention": { "maxJobs": 1_000, "maxMib": 100 },
    });
    check("endpoint-with-all-fields", &client.post("/v1/endpoints", &all).await);
    check("endpoint", &client.get("/v1/endpoints/mill").await);
    check("endpoint-patch", &client.patch("/v1/endpoints/mill", &json!({ "workersMax": 2 })).await);
    check("endpoints", &client.get("/v1/endpoints?limit=1").await);
    let path = "/v1/endpoints/mill/rotate-webhook-secret";
    check("endpoint-rotate-webhook-secret", &client.post_empty(path).await);
    let component = fs::read(guests::playground()).unwrap();
    client.upload("echo:latest", component).await.ok();
    check("releases", &client.get("/v1/endpoints/mill/releases").await);
    check("rollback", &client.post("/v1/endpoints/mill/rollback", &json!({})).await);
    check("endpoint-delete", &client.delete("/v1/endpoints/mill").await);
}

#[tokio::test]
async fn keys_volumes_and_credentials() {
    let host = host(&[]);
    let client = host.client();
    let key = json!({ "name": "ci", "owner": "miller", "scopes": ["read", "submit"], "expiresInSeconds": 60 });
    check("key-post", &client.post("/v1/keys", &key).await);
    // In the order of their ids, which are random.
    let mut keys = client.get("/v1/keys").await;
    let mut list: Vec<Value> = serde_json::from_str(&keys.text).unwrap();
    list.sort_by_key(|key| key["name"].to_string());
    keys.text = json!(list).to_string();
    check("keys", &keys);
    check(
        "volume-post",
        &client.post("/v1/networkvolumes", &json!({ "name": "grain", "size": 2 })).await,
    );
    check("volumes", &client.get("/v1/networkvolumes").await);
    let auth = json!({ "name": "hub", "username": "miller", "password": "secret" });
    check("registry-auth-post", &client.post("/v1/containerregistryauth", &auth).await);
    check("registry-auths", &client.get("/v1/containerregistryauth").await);
    check("console-link", &client.post_empty("/console/links").await);
    check("secrets-rotate", &client.post_empty("/v1/secrets/rotate").await);
}

#[tokio::test]
async fn jobs_logs_deliveries_and_usage() {
    let receiver = Receiver::start(&["500 No"]).await;
    let host = host(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    // Its worker stays for the lists of workers.
    let settings = json!({ "workersMax": 1, "idleTimeout": 3_600 });
    host.deploy(&guests::playground(), "mill", settings).await;
    let path = "/v2/mill/runsync";
    let body =
        json!({ "input": { "op": "fail", "message": "no flour" }, "tags": { "batch": "one" } });
    client.post(path, &body).await.ok();
    client.post(path, &json!({ "input": { "op": "stdout", "bytes": 20 } })).await.ok();
    check("jobs", &client.get("/v1/jobs").await);
    let logs = eventually("the log line", async || {
        let logs = client.get("/v1/endpoints/mill/logs").await;
        (logs.ok() != json!([])).then_some(logs)
    })
    .await;
    check("logs", &logs);
    let action = json!({ "action": "delete", "filter": { "tags": { "batch": "one" } } });
    let begun = client.post("/v1/job-actions", &action).await;
    let one = format!("/v1/job-actions/{}", begun.ok()["id"].as_str().unwrap());
    let ended = eventually("the end of the action", async || {
        let action = client.get(&one).await;
        (action.ok()["state"] != "RUNNING").then_some(action)
    })
    .await;
    check("job-action", &ended);
    check("job-actions", &client.get("/v1/job-actions").await);

    client
        .post(path, &json!({ "input": { "op": "echo" }, "webhook": receiver.url("/") }))
        .await
        .ok();
    let deliveries = eventually("the attempt", async || {
        let deliveries = client.get("/v1/endpoints/mill/deliveries").await;
        (deliveries.ok()[0]["attempts"] == 1).then_some(deliveries)
    })
    .await;
    let mut deliveries = deliveries;
    deliveries.text = deliveries.text.replace(&receiver.url("/"), "http://receiver/");
    check("deliveries", &deliveries);
    check("pods", &client.get("/v1/pods?includeWorkers=true").await);
    let path = "/v1/endpoints/mill?includeTemplate=true&includeWorkers=true";
    check("endpoint-with-parts", &client.get(path).await);
    check("billing", &client.get("/v1/billing/endpoints?bucketSize=hour").await);
    check("system", &client.get("/v1/system").await);
    check("cluster", &client.get("/v1/cluster").await);
    let settings = json!({ "type": "LOAD_BALANCER" });
    host.deploy(&guests::http_playground(), "site", settings).await;
    let request = client.request(Method::GET, "/http/site/status?code=503");
    request.send().await.unwrap().bytes().await.unwrap();
    let mut requests = eventually("the request to end", async || {
        let requests = client.get("/v1/endpoints/site/requests").await;
        (requests.ok() != json!([])).then_some(requests)
    })
    .await;
    // The wait is measured by the clock of the machine.
    let waited = format!("\"waitedMs\":{}", requests.ok()[0]["waitedMs"]);
    requests.text = requests.text.replace(&waited, "\"waitedMs\":1");
    check("http-requests", &requests);
    check("series", &client.get("/v1/series?window=15m").await);
    check("series-of-endpoint", &client.get("/v1/endpoints/mill/series?window=15m").await);
}
