//! Unauthenticated callers.

use gristmill_tests::{TestHost, eventually};

#[tokio::test]
async fn unauthenticated_callers_are_limited_by_their_address() {
    let host = TestHost::start_configured("[rate-limits.unauthenticated]\ncalls-per-10s = 20\n");
    let client = host.client();
    let unauthenticated = [client.with_authorization(None), client.with_key("gm_0000_wrong")];
    let mut statuses = vec![];
    for n in 0..30 {
        // Each of these calls has no valid key.
        let caller = &unauthenticated[n % 2];
        let path =
            ["/v1/templates", "/v2/x/health", "/nowhere", "/openapi.json", "/v2/x/run"][n % 5];
        statuses.push(caller.get(path).await.status);
    }
    // Eleven at once, and one more in each second that this takes.
    let let_in = statuses.iter().filter(|status| **status != 429).count();
    assert!((11..=20).contains(&let_in), "{statuses:?}");
    // On a busy machine the next call may be let in, but not all that follow.
    let refused = eventually("a call to be refused", async || {
        let answer = unauthenticated[0].get("/v1/templates").await;
        (answer.status == 429).then_some(answer)
    })
    .await;
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=10).contains(&wait), "{wait}");
    assert!(refused.refused(429).contains("without a valid API key"), "{refused:?}");
    // A valid key from the same address is not affected.
    client.get("/v1/templates").await.ok();
    client.get("/openapi.json").await.ok();
    client.get("/nowhere").await.refused(404);
}
