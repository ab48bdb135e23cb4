//! Tags of jobs: where clients see them, and what is refused.

use gristmill_tests::{Receiver, TestHost, guests, shared_host};
use serde_json::{Map, Value, json};

#[tokio::test]
async fn tags_are_shown_in_every_status_document_and_webhook() {
    let receiver = Receiver::start(&["200"]).await;
    let host = TestHost::start_with(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "tagged", json!({})).await;
    let tags = json!({ "env": "prod", "team/run": "é = % \"1\"", "empty": "" });
    let submit = async |input: Value| {
        let body = json!({ "input": input, "tags": tags, "webhook": receiver.url("/") });
        client.post(&client.path(&endpoint, "run"), &body).await.ok()["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let failed = submit(json!({ "op": "fail" })).await;
    assert_eq!(client.until(&endpoint, &failed, "FAILED").await["tags"], tags);
    client.retry(&endpoint, &failed).await.ok();
    assert_eq!(client.until(&endpoint, &failed, "FAILED").await["tags"], tags);
    let seen = submit(json!({ "op": "echo" })).await;
    assert_eq!(client.until(&endpoint, &seen, "COMPLETED").await["tags"], tags);
    for call in receiver.until(3).await {
        assert_eq!(call.json()["tags"], tags);
    }
    let plain = client.submit(&endpoint, json!({ "op": "echo" })).await;
    assert_eq!(client.until(&endpoint, &plain, "COMPLETED").await.get("tags"), None);
    let body = json!({ "input": { "op": "echo" }, "tags": tags });
    let answer = client.post(&client.path(&endpoint, "runsync"), &body).await.ok();
    assert_eq!(answer["tags"], tags);
}

#[tokio::test]
async fn hostile_tags_are_refused_with_a_sentence() {
    let host = shared_host();
    let client = &host.client;
    let endpoint = host.deploy(&guests::echo(), "hostile-tags", json!({ "workersMax": 0 })).await;
    let path = client.path(&endpoint, "run");
    let many: Map<_, _> = (0..1_000).map(|n| (n.to_string(), json!("x"))).collect();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (tags, sentence) in [
        (json!({ "a": "x".repeat(9_900_000) }).to_string(), "`tags.a` has 9900000 bytes"),
        (
            json!({ ("a".repeat(9_900_000)): "x" }).to_string(),
            "each key of `tags` must have 1 to 64",
        ),
        (Value::Object(many).to_string(), "`tags` has more than 16 pairs"),
        (json!({ "a": "\u{1}" }).to_string(), "`tags.a` has a control character"),
        (json!({ "a\n": "b" }).to_string(), "each key of `tags`"),
        (json!({ "a": null }).to_string(), "`tags.a` must be a string"),
        (json!([["a", "b"]]).to_string(), "`tags` must be an object"),
        (r#"{"a":"1","a":"2"}"#.to_owned(), "`tags` has the key `a` twice"),
        (r#"{"a":"\ud800"}"#.to_owned(), "`tags.a` must be a string"),
        (format!(r#"{{"a":{deep}}}"#), ""),
    ] {
        let refused = client.post_text(&path, format!(r#"{{"input":{{}},"tags":{tags}}}"#)).await;
        let said = refused.refused(400);
        assert!(said.contains(sentence) && said.len() < 300, "{tags:.99}: {said:.999}");
    }
    assert_eq!(client.health(&endpoint).await["jobs"]["inQueue"], 0);
}
