//! Endpoints that request a GPU, which this platform does not have.

use gristmill_tests::{TestHost, guests, shared_host};
use serde_json::{Value, json};

/// A body of a deployment of the hosted service, for this template.
fn with_gpus(template: &Value) -> Value {
    json!({
        "templateId": template, "computeType": "GPU", "gpuCount": 8,
        "gpuTypeIds": ["NVIDIA H100"], "vcpuCount": 4,
    })
}

async fn template_of(host: &TestHost, name: &str) -> Value {
    let endpoint = host.deploy(&guests::echo(), name, json!({})).await;
    host.client().get(&format!("/v1/endpoints/{endpoint}")).await.ok()["templateId"].clone()
}

#[tokio::test]
async fn an_endpoint_with_gpus_is_refused_with_the_option_that_permits_it() {
    let host = shared_host();
    let template = template_of(&host, "gpu-refused").await;
    let refused = host.client.post("/v1/endpoints", &with_gpus(&template)).await.refused(400);
    assert!(refused.contains("`computeType` requests a GPU"), "{refused}");
    assert!(refused.contains("`--ignore-gpu-fields`"), "{refused}");
    let change = json!({ "gpuTypeIds": ["NVIDIA H100"] });
    let refused = host.client.patch("/v1/endpoints/gpu-refused", &change).await.refused(400);
    assert!(refused.contains("`gpuTypeIds` requests a GPU"), "{refused}");
    let none = json!({ "gpuCount": 0, "gpuTypeIds": [], "computeType": "CPU" });
    host.client.patch("/v1/endpoints/gpu-refused", &none).await.ok();
}

#[tokio::test]
async fn a_host_with_the_option_names_the_fields_that_it_ignored() {
    let host = TestHost::start_with(&["--ignore-gpu-fields"]);
    let client = host.client();
    let template = template_of(&host, "gpu-ignored").await;
    let made = client.post("/v1/endpoints", &with_gpus(&template)).await.ok();
    assert_eq!(made["ignoredFields"], json!(["computeType", "gpuCount", "gpuTypeIds"]));
    assert_eq!(made["computeType"], "CPU");
    let path = format!("/v1/endpoints/{}", made["id"].as_str().unwrap());
    let mut kept = client.get(&path).await.ok();
    assert_eq!(kept.get("ignoredFields"), None, "{kept}");
    // An answer can be sent back with a change.
    kept["ignoredFields"] = made["ignoredFields"].clone();
    kept["gpuCount"] = json!(1);
    let changed = client.patch(&path, &kept).await.ok();
    assert_eq!(changed["ignoredFields"], json!(["gpuCount"]));
}
