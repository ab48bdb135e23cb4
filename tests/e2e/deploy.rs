//! New versions and settings reach an endpoint while it works.

use gristmill_tests::{TestHost, guests, shared_host};
use serde_json::json;

async fn upload(host: &TestHost, reference: &str, component: std::path::PathBuf) {
    host.upload(reference, std::fs::read(component).unwrap()).await.ok();
}

#[tokio::test]
async fn the_next_job_runs_the_new_version_and_the_running_one_ends_as_it_began() {
    let host = shared_host();
    upload(&host, "deploy-image:latest", guests::playground()).await;
    let settings = json!({ "workersMax": 2 });
    let endpoint = host.deploy_image("deploy-image:latest", "deploy", settings).await;
    let running = host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 1500 })).await;
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;

    upload(&host, "deploy-image:latest", guests::echo()).await;
    let input = json!({ "op": "echo", "value": 1 });
    let next = host.client.finish(&endpoint, input.clone()).await;
    assert_eq!(next["output"], input, "the new version returns its input");
    let document = host.client.until(&endpoint, &running, "COMPLETED").await;
    assert_eq!(document["output"]["slept"], 1500, "{document}");

    upload(&host, "deploy-image:latest", guests::playground()).await;
    let next = host.client.finish(&endpoint, input).await;
    assert_eq!(next["output"], json!({ "echo": 1 }), "and back");
}

#[tokio::test]
async fn jobs_flow_on_without_a_loss_while_versions_change() {
    let host = shared_host();
    upload(&host, "deploy-flow:latest", guests::playground()).await;
    let endpoint = host.deploy_image("deploy-flow:latest", "deploy-flow", json!({})).await;
    let input = json!({ "op": "echo", "value": 1 });
    let flow = async {
        let mut outputs = vec![];
        for _ in 0..150 {
            let document = host.client.run_sync(&endpoint, "", input.clone()).await.ok();
            assert_eq!(document["status"], "COMPLETED", "{document}");
            outputs.push(document["output"].clone());
        }
        outputs
    };
    let changes = async {
        for component in [guests::echo(), guests::playground(), guests::echo()] {
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
            upload(&host, "deploy-flow:latest", component).await;
        }
    };
    let (outputs, ()) = tokio::join!(flow, changes);
    let old = outputs.iter().filter(|output| **output == json!({ "echo": 1 })).count();
    let new = outputs.iter().filter(|output| **output == input).count();
    println!("while versions changed, {old} jobs ran the playground and {new} the echo");
    assert_eq!(old + new, 150);
}

#[tokio::test]
async fn changed_settings_hold_from_the_next_job_on() {
    let host = shared_host();
    let settings = json!({ "env": { "GRAIN": "rye" } });
    let endpoint = host.deploy(&guests::playground(), "deploy-env", settings).await;
    let read = json!({ "op": "env", "name": "GRAIN" });
    let document = host.client.finish(&endpoint, read.clone()).await;
    assert_eq!(document["output"], json!({ "env": "rye" }));
    let path = format!("/v1/endpoints/{endpoint}");
    host.client.patch(&path, &json!({ "env": { "GRAIN": "oat" } })).await.ok();
    let document = host.client.finish(&endpoint, read).await;
    assert_eq!(document["output"], json!({ "env": "oat" }));
}

#[tokio::test]
async fn an_endpoint_that_is_deleted_takes_its_jobs_along() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "deploy-delete", settings).await;
    let running = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;
    let queued = host.client.submit(&endpoint, json!({ "op": "echo" })).await;
    assert_eq!(host.client.delete(&format!("/v1/endpoints/{endpoint}")).await.status, 204);
    for job in [&running, &queued] {
        host.client.status(&endpoint, job).await.refused(404);
    }
    host.client.run(&endpoint, json!({ "op": "echo" })).await.refused(404);
    // A new endpoint of that name starts empty.
    let body = json!({ "id": endpoint, "templateId": endpoint });
    host.client.post("/v1/endpoints", &body).await.ok();
    host.client.status(&endpoint, &queued).await.refused(404);
    assert_eq!(host.client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
    assert_eq!(host.client.health(&endpoint).await["jobs"]["completed"], 1);
}
