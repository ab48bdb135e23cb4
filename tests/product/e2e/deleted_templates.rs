//! Endpoints whose template was another owner's and was deleted.

use gristmill_tests::{eventually, guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn an_endpoint_that_is_sent_back_does_not_run_the_template_of_a_third_owner() {
    let host = shared_host();
    let a = host.client_of("taken-a").await;
    let b = host.client_of("taken-b").await;
    let c = host.client_of("taken-c").await;
    for client in [&a, &b, &c] {
        client.upload("taken:1", std::fs::read(guests::echo()).unwrap()).await.ok();
    }
    let template =
        json!({ "id": "taken-t", "name": "taken", "imageName": "taken:1", "isPublic": true });
    a.post("/v1/templates", &template).await.ok();
    let new =
        json!({ "id": "taken-e", "templateId": "taken-t", "env": { "SECRET": "of the endpoint" } });
    b.post("/v1/endpoints", &new).await.ok();
    let endpoint = "/v1/endpoints/taken-e";
    assert_eq!(b.get(endpoint).await.ok().get("templateIsDeleted"), None);
    a.patch("/v1/templates/taken-t", &json!({ "isPublic": false })).await.ok();
    assert_eq!(a.delete("/v1/templates/taken-t").await.status, 204);
    let mut shown = b.get(endpoint).await.ok();
    assert_eq!(shown["templateIsDeleted"], true, "{shown}");

    c.post("/v1/templates", &template).await.ok();
    shown["workersMax"] = json!(3);
    let changed = b.patch(endpoint, &shown).await.ok();
    assert_eq!(
        (&changed["workersMax"], &changed["templateIsDeleted"]),
        (&json!(3), &json!(true)),
        "{changed}"
    );
    let input = json!({ "op": "echo", "value": 1 });
    let job = b.submit("taken-e", input.clone()).await;
    eventually("the job to wait with a reason", async || {
        let status = b.status("taken-e", &job).await.ok();
        assert_eq!(status["status"], "IN_QUEUE", "{status}");
        status["reason"].as_str().is_some_and(|why| why.contains("was deleted")).then_some(())
    })
    .await;

    // The owner chooses the new template on purpose, in two steps.
    let own = json!({ "id": "taken-own", "name": "own", "imageName": "taken:1" });
    b.post("/v1/templates", &own).await.ok();
    b.patch(endpoint, &json!({ "templateId": "taken-own" })).await.ok();
    assert_eq!(b.finished("taken-e", &job).await["output"], input);
    let chosen = b.patch(endpoint, &json!({ "templateId": "taken-t" })).await.ok();
    assert_eq!((&chosen["templateId"], chosen.get("templateIsDeleted")), (&json!("taken-t"), None));
    assert_eq!(b.finish("taken-e", input.clone()).await["output"], input);
}
