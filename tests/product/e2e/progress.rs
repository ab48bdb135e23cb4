//! Progress: values that a handler reports while it runs.

use gristmill_tests::{eventually, guests, shared_host};
use serde_json::{Value, json};

#[tokio::test]
async fn progress_is_the_output_while_the_job_runs_and_never_after() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "progress", json!({})).await;
    let input = json!({ "op": "progress", "steps": 4, "delay_ms": 1_000 });
    let job = host.client.submit(&endpoint, input).await;
    let mut seen = vec![];
    let done = eventually("the job with progress to end", async || {
        let document = host.client.status(&endpoint, &job).await.ok();
        match document["status"].as_str().unwrap() {
            "IN_QUEUE" => assert!(document.get("output").is_none(), "{document}"),
            "IN_PROGRESS" => seen.extend(document.get("output").cloned()),
            _ => return Some(document),
        }
        None
    })
    .await;
    assert_eq!(done["status"], "COMPLETED");
    assert_eq!(done["output"], json!({ "done": 4 }));
    let steps: Vec<_> =
        seen.iter().map(|value: &Value| value["progress"].as_u64().unwrap()).collect();
    println!("progress as a client saw it: {steps:?}");
    assert!(steps.is_sorted() && steps.iter().all(|step| (1..=4).contains(step)), "{steps:?}");
    // Values may be coalesced, but a second apart is not quick.
    assert!(steps.first() != steps.last(), "{steps:?}");
}
