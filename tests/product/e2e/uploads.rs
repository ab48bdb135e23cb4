//! Accepted and refused handlers.

use gristmill_tests::{eventually, guests, shared_host};
use serde_json::json;

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// A component with the `run` export's name but nothing behind its imports.
const UNKNOWN_IMPORT: &str =
    r#"(component (import "acme:rockets/launch@1.0.0" (instance (export "go" (func)))))"#;

#[tokio::test]
async fn bytes_that_are_no_handler_are_refused_with_a_reason() {
    let host = shared_host();
    let noise: Vec<u8> =
        (0..1024_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut cut = std::fs::read(guests::echo()).unwrap();
    cut.truncate(cut.len() / 2);
    let cases = [
        ("empty", vec![], "empty"),
        ("noise", noise, ""),
        ("text", b"fn main() {}".to_vec(), ""),
        ("core-module", component("(module)"), "component"),
        ("cut", cut, ""),
        ("no-export", component("(component)"), "run"),
        ("unknown-import", component(UNKNOWN_IMPORT), "acme:rockets/launch"),
    ];
    for (name, bytes, word) in cases {
        let answer = host.upload(&format!("upload-{name}:latest"), bytes).await;
        let sentence = answer.refused(400);
        println!("{name}: {sentence}");
        assert!(sentence.contains(word), "{name}: {sentence}");
    }
    let listed = host.client.get("/v1/handlers").await.ok();
    assert!(!listed.to_string().contains("upload-"), "{listed}");
}

#[tokio::test]
async fn an_upload_describes_the_stored_component() {
    let host = shared_host();
    let bytes = std::fs::read(guests::word_count()).unwrap();
    let answer = host.upload("words:v1", bytes.clone()).await.ok();
    assert_eq!((&answer["name"], &answer["tag"]), (&json!("words"), &json!("v1")), "{answer}");
    let digest = answer["sha256"].as_str().unwrap();
    assert_eq!(digest.len(), 64, "{answer}");
    // The same bytes again, and the same component by its digest.
    assert_eq!(host.upload("words:v2", bytes).await.ok()["sha256"], digest);
    let image = format!("words@sha256:{digest}");
    let endpoint = host.deploy_image(&image, "upload-digest", json!({})).await;
    let input = json!({ "text": "grain" });
    let document = host.client.finish(&endpoint, input).await;
    assert_eq!(document["output"]["words"], 1, "{document}");
}

#[tokio::test]
async fn a_handlers_name_is_checked() {
    let host = shared_host();
    let bytes = std::fs::read(guests::echo()).unwrap();
    for reference in ["a:b:c", "sp%20ace:latest", "x:", &format!("{}:latest", "x".repeat(200))] {
        host.upload(reference, bytes.clone()).await.refused(400);
    }
}

#[tokio::test]
async fn a_job_whose_handler_was_never_uploaded_waits_and_says_why() {
    let host = shared_host();
    let endpoint = host.deploy_image("not-there:latest", "upload-missing", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "a": 1 })).await;
    // The reason is known only after a worker has tried.
    let reason = eventually("a reason to wait", async || {
        let document = host.client.until(&endpoint, &job, "IN_QUEUE").await;
        document["reason"].as_str().map(str::to_owned)
    });
    println!("a job without a component waits because: {}", reason.await);
    // After the handler was uploaded, the job runs.
    host.upload("not-there:latest", std::fs::read(guests::echo()).unwrap()).await.ok();
    let document = host.client.until(&endpoint, &job, "COMPLETED").await;
    assert_eq!(document["output"], json!({ "a": 1 }));
}
