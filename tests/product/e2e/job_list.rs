//! `GET /v1/jobs`: jobs of several endpoints by status, tag, time, id and error, for two owners.

use gristmill_tests::{Client, PATIENCE, TestHost, guests};
use serde_json::{Value, json};

async fn submit(client: &Client, endpoint: &str, input: Value, tags: Value) -> String {
    client.submit_body(endpoint, &json!({ "input": input, "tags": tags })).await
}

/// The ids of all jobs that a query selects, page by page.
async fn listed(client: &Client, query: &str) -> Vec<String> {
    let (mut found, mut cursor) = (vec![], String::new());
    loop {
        let page = client.get(&format!("/v1/jobs?{query}{cursor}")).await.ok();
        let ids = page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap());
        found.extend(ids.map(str::to_owned));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test]
async fn jobs_are_found_across_endpoints_and_owners_stay_apart() {
    let mut host = TestHost::start_with(&["--archive-after", "0"]);
    let [a, b] = [host.client_of("a").await, host.client_of("b").await];
    for (client, name) in [(&a, "a-one"), (&a, "a-two"), (&b, "b-one")] {
        client.deploy(&guests::playground(), name, json!({})).await;
    }
    let prod = json!({ "env": "prod", "n": "1" });
    let failing =
        json!({ "op": "fail", "message": format!("{} 100%_ needle", "no grain ".repeat(99)) });
    let failed = submit(&a, "a-one", failing, prod.clone()).await;
    a.until("a-one", &failed, "FAILED").await;
    let done = submit(&a, "a-two", json!({ "op": "echo" }), prod.clone()).await;
    a.until("a-two", &done, "COMPLETED").await;
    let test = submit(&a, "a-two", json!({ "op": "echo" }), json!({ "env": "test" })).await;
    a.until("a-two", &test, "COMPLETED").await;
    a.patch("/v1/endpoints/a-one", &json!({ "workersMax": 0 })).await.ok();
    let waiting = submit(&a, "a-one", json!({ "op": "echo" }), prod.clone()).await;
    let theirs = submit(&b, "b-one", json!({ "op": "fail", "message": "needle" }), prod).await;
    b.until("b-one", &theirs, "FAILED").await;

    let by_prod = [&*waiting, &*done, &*failed];
    for query in ["tag=env:prod", "tag=env:prod&limit=1", "tag=n:1&tag=env:prod&limit=2"] {
        assert_eq!(listed(&a, query).await, by_prod, "{query}");
    }
    assert_eq!(listed(&a, "").await, [&*waiting, &*test, &*done, &*failed]);
    assert_eq!(listed(&a, "tag=env:prod&endpoint=a-two").await, [&*done]);
    // A name counts once, however often it is given.
    let repeated = "endpoint=a-one&".repeat(1_001);
    let both = format!("{repeated}endpoint=a-two&tag=env:prod");
    assert_eq!(listed(&a, &both).await, by_prod);
    a.get(&format!("/v1/jobs?{repeated}endpoint=b-one")).await.refused(404);
    assert_eq!(
        listed(&a, "endpoint=a-two&endpoint=a-one&status=FAILED&status=IN_QUEUE").await,
        [&*waiting, &*failed]
    );
    assert_eq!(listed(&a, "error=needle").await, [&*failed]);
    assert_eq!(listed(&a, "error=100%25_%20n").await, [&*failed]);
    for wildcard in ["no%25grain", "no_grain", "needle%25", "%25", "_"] {
        let expected: &[&str] = if matches!(wildcard, "%25" | "_") { &[&failed] } else { &[] };
        assert_eq!(listed(&a, &format!("error={wildcard}")).await, expected, "{wildcard}");
    }
    assert_eq!(listed(&a, &format!("idPrefix={}", &failed[..35])).await, [&*failed]);
    assert_eq!(listed(&a, &format!("idPart={}", &failed[24..36])).await, [&*failed]);
    assert_eq!(listed(&a, "to=2020-01-01T00:00:00Z").await, [""; 0]);
    assert_eq!(listed(&a, "from=2020-01-01T00:00:00Z&to=2100-01-01T00:00:00Z").await.len(), 4);
    // Nothing of the other owner, whose endpoints do not exist for this one.
    assert_eq!(listed(&b, "tag=env:prod").await, [&*theirs]);
    let refused = b.get("/v1/jobs?endpoint=a-one").await;
    let unknown = b.get("/v1/jobs?endpoint=a-nothing").await;
    assert_eq!(refused.refused(404).replace("a-one", "a-nothing"), unknown.refused(404));
    let cursor = a.get("/v1/jobs?limit=1").await.ok()["cursor"].as_str().unwrap().to_owned();
    let page = b.get(&format!("/v1/jobs?cursor={cursor}")).await;
    assert!(!page.text.contains("a-"), "{page:?}");
    // The operator's admin key sees all owners.
    assert_eq!(
        listed(&host.client(), "tag=env:prod").await,
        [&*theirs, &*waiting, &*done, &*failed]
    );
    let shown = a.get("/v1/jobs?status=FAILED").await.ok()["jobs"][0].clone();
    assert_eq!((&shown["endpointId"], &shown["tags"]["env"]), (&json!("a-one"), &json!("prod")));
    assert!(shown["error"].as_str().unwrap().starts_with("no grain no grain"), "{shown}");
    // After a start the ended jobs are only in the tables, a moment later.
    host.ask_to_end();
    host.wait(PATIENCE);
    host.start_again();
    let a = host.client_of("a").await;
    assert_eq!(listed(&a, "tag=env:prod&limit=1").await, by_prod);
    a.retry("a-one", &failed).await.ok();
    assert_eq!(listed(&a, "tag=env:prod&status=IN_QUEUE").await, [&*waiting, &*failed]);
}

#[tokio::test]
async fn a_key_needs_the_scope_read_and_all_endpoints() {
    let host = TestHost::start();
    let admin = host.client();
    admin.deploy(&guests::playground(), "e", json!({})).await;
    for (new, status) in [
        (json!({ "name": "k", "scopes": ["read"] }), 200),
        (json!({ "name": "k", "scopes": ["submit"] }), 200),
        (json!({ "name": "k", "scopes": ["manage"] }), 401),
        (json!({ "name": "k", "scopes": ["metrics"] }), 401),
        (json!({ "name": "k", "scopes": ["read"], "endpoints": ["e"] }), 401),
    ] {
        let key = admin.post("/v1/keys", &new).await.ok()["key"].as_str().unwrap().to_owned();
        assert_eq!(admin.with_key(&key).get("/v1/jobs").await.status, status, "{new}");
    }
    for (query, sentence) in [
        ("cursor=0123456789abcdef", "cursor"),
        ("cursor=%00", "query `cursor` must be the `cursor` of a page"),
        ("limit=1001", "query `limit` must be 1 to 1000"),
        ("tag=env", "query `tag` must be a key"),
    ] {
        let refused = admin.get(&format!("/v1/jobs?{query}")).await.refused(400);
        assert!(refused.contains(sentence), "{query}: {refused}");
    }
}

/// Tags can be 2 KiB for each of 1,000 jobs.
#[tokio::test]
async fn a_page_of_jobs_ends_after_a_mib_and_the_next_one_follows() {
    let host = TestHost::start();
    let client = host.client();
    client.deploy(&guests::playground(), "tagged", json!({})).await;
    client.patch("/v1/endpoints/tagged", &json!({ "workersMax": 0 })).await.ok();
    let tags: serde_json::Map<_, _> =
        (0..8).map(|n| (n.to_string(), "\"".repeat(250).into())).collect();
    let mut submitted = vec![];
    for _ in 0..300 {
        submitted.push(submit(&client, "tagged", json!({}), tags.clone().into()).await);
    }
    submitted.reverse();
    let first = client.get("/v1/jobs?limit=1000").await;
    assert!((900 << 10..=1025 << 10).contains(&first.text.len()), "{}", first.text.len());
    assert_eq!(listed(&client, "limit=1000").await, submitted);
    assert_eq!(listed(&client, "limit=299").await, submitted);
}
