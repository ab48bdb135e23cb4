//! `?input=true` of the status document: the input of a job, as long as the host keeps it.

use gristmill_tests::{guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn the_input_is_shown_unchanged_until_the_job_needs_it_no_more() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "input", json!({ "workersMax": 1 })).await;
    // Numbers and their order would change in any JSON library.
    let input = r#"{"op":"fail","z": 9007199254740993, "a":1.0}"#;
    let run = host.client.path(&endpoint, "run");
    let submitted = host.client.post_text(&run, format!("{{\"input\":{input}}}")).await;
    let failed = submitted.ok()["id"].as_str().unwrap().to_owned();
    host.client.until(&endpoint, &failed, "FAILED").await;
    let shown = host.client.status(&endpoint, &format!("{failed}?input=true")).await;
    assert!(shown.text.contains(&format!("\"input\":{input}")), "{}", shown.text);
    for query in ["", "?input=false"] {
        let without = host.client.status(&endpoint, &format!("{failed}{query}")).await.ok();
        assert!(without.get("input").is_none(), "{without}");
    }
    let refused = host.client.status(&endpoint, &format!("{failed}?input=maybe")).await;
    let refused = refused.refused(400);
    assert!(
        refused.contains("must be true or false, as in `input=true`, not `maybe`"),
        "{refused}"
    );

    let large = json!({ "op": "echo", "text": "x".repeat(100_000) });
    let waiting = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    let queued = host.client.submit(&endpoint, large.clone()).await;
    let shown = host.client.status(&endpoint, &format!("{queued}?input=true")).await.ok();
    assert_eq!(shown["input"], large);
    host.client.cancel(&endpoint, &waiting).await.ok();
    host.client.until(&endpoint, &queued, "COMPLETED").await;
    let shown = host.client.status(&endpoint, &format!("{queued}?input=true")).await.ok();
    assert!(shown.get("input").is_none(), "a completed job has no input");
}
