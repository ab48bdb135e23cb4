//! The bound on the memory of all sandboxes together.

use gristmill_tests::{TestHost, eventually, guests};
use serde_json::json;

#[tokio::test]
async fn jobs_wait_for_memory_and_an_endpoint_beyond_it_says_why() {
    let host = TestHost::start_with(&["--max-sandbox-memory-mib", "300"]);
    let client = host.client();
    let deploy = async |name: &str, mib: u64| {
        let settings = json!({ "memoryMib": mib, "reuse": { "maxJobs": 100, "maxIdle": 3600 } });
        host.deploy(&guests::playground(), name, settings).await
    };
    let (large, small) = (deploy("large", 256).await, deploy("small", 32).await);
    let (middle, huge) = (deploy("middle", 128).await, deploy("huge", 512).await);
    let forever = json!({ "op": "sleep_forever" });
    let echo = json!({ "op": "echo", "value": 1 });
    let running = client.submit(&large, forever).await;
    client.until(&large, &running, "IN_PROGRESS").await;
    assert_eq!(client.finish(&small, echo.clone()).await["status"], "COMPLETED", "it fits beside");
    let reason_of = async |endpoint: &str, job: &str, part: &str| {
        eventually("a reason", async || {
            let waiting = client.status(endpoint, job).await.ok();
            assert_eq!(waiting["status"], "IN_QUEUE", "{waiting}");
            waiting["reason"].as_str().filter(|reason| reason.contains(part)).map(str::to_owned)
        })
        .await
    };
    let waiting = client.submit(&middle, echo.clone()).await;
    reason_of(&middle, &waiting, "--max-sandbox-memory-mib").await;
    let never = client.submit(&huge, echo.clone()).await;
    let reason = reason_of(&huge, &never, "memoryMib of 512").await;
    assert!(reason.contains("300 MiB (--max-sandbox-memory-mib)"), "{reason}");
    client.cancel(&large, &running).await.ok();
    client.until(&middle, &waiting, "COMPLETED").await;
    // Idle instances have memory too, and are dropped.
    assert_eq!(client.finish(&large, echo.clone()).await["status"], "COMPLETED");
    assert_eq!(client.finish(&middle, echo).await["status"], "COMPLETED");
    client.patch("/v1/endpoints/huge", &json!({ "memoryMib": 300 })).await.ok();
    client.until(&huge, &never, "COMPLETED").await;
}
