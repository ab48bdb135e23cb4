//! Our decisions where the contract is silent, about documents: numbers, fields, ids.

use gristmill_tests::{Answer, LocalServer, eventually, guests, shared_host};
use serde_json::json;

use crate::support::{echo, forever, id, one_worker, paused, shared};

/// Times are always present and integers; input and output are raw JSON: large integers, the order
/// of keys and the spelling of numbers survive.
#[tokio::test]
async fn numbers() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "answers-numbers", json!({})).await;
    let input =
        r#"{"z":9007199254740993,"a":1.50,"m":[12345678901234567890123,-0.0,1e3],"é":"é\u0001"}"#;
    let body = format!("{{\"input\":{input}}}");
    let answer = host.client.post_text(&host.client.path(&endpoint, "runsync"), &body).await;
    assert!(answer.text.contains(&format!("\"output\":{input}")), "{answer:?}");
    let status = host.client.status(&endpoint, &id(&answer.ok())).await;
    assert!(status.text.contains(&format!("\"output\":{input}")), "{status:?}");

    let endpoint = shared("answers-times", one_worker()).await;
    let running = endpoint.running(forever()).await;
    let queued = endpoint.submit(echo()).await;
    let cancelled = endpoint.submit(echo()).await;
    endpoint.cancel(&cancelled).await.ok();
    for job in [&running, &queued, &cancelled] {
        let document = endpoint.status(job).await.ok();
        assert!(document["delayTime"].is_u64() && document["executionTime"].is_u64(), "{document}");
    }
    endpoint.cancel(&running).await.ok();
}

fn fields(answer: &Answer) -> Vec<String> {
    let document = answer.ok();
    let fields = document.as_object().unwrap();
    assert!(fields.values().all(|value| !value.is_null()), "{document}");
    fields.keys().cloned().collect()
}

/// The status document always has its four fields, and the others exactly when they have a value:
/// workerId, output (the progress while the job runs), error, retries, and the reason for waiting.
#[tokio::test]
async fn status_document() {
    let server = LocalServer::start().await;
    let endpoint = shared("answers-document", paused()).await;
    let always = ["delayTime", "executionTime", "id", "status"];
    let with = |more: &[&str]| {
        let mut fields: Vec<_> =
            always.iter().chain(more).map(|field| (*field).to_owned()).collect();
        fields.sort_unstable();
        fields
    };
    let assert_fields = async |job: &str, more: &[&str]| {
        let answer = endpoint.status(job).await;
        let mut fields = fields(&answer);
        fields.sort_unstable();
        assert_eq!(fields, with(more), "{answer:?}");
        answer.ok()
    };
    let job = endpoint.submit(json!({ "op": "progress", "steps": 2, "delay_ms": 600_000 })).await;
    assert_fields(&job, &["reason"]).await;
    let cancelled = endpoint.submit(echo()).await;
    endpoint.cancel(&cancelled).await.ok();
    assert_fields(&cancelled, &[]).await;
    endpoint.set_workers_max(1).await;
    let progress =
        eventually("progress", async || endpoint.status(&job).await.ok().get("output").cloned())
            .await;
    assert_eq!(progress, json!({ "progress": 1 }));
    assert_eq!(assert_fields(&job, &["workerId", "output"]).await["status"], "IN_PROGRESS");
    endpoint.cancel(&job).await.ok();
    let done = id(&endpoint.finish(json!({ "op": "progress", "steps": 2 })).await);
    let done = assert_fields(&done, &["workerId", "output"]).await;
    assert_eq!((&done["status"], &done["output"]), (&json!("COMPLETED"), &json!({ "done": 2 })));
    let fetch = json!({ "op": "fetch", "url": server.url("/") });
    let failed = id(&endpoint.finish(fetch).await);
    assert!(assert_fields(&failed, &["workerId", "error"]).await["error"].is_string());
    endpoint.retry(&failed).await.ok();
    endpoint.until(&failed, "FAILED").await;
    let again = assert_fields(&failed, &["workerId", "error", "retries"]).await;
    assert_eq!(again["retries"], 1);
}

/// A job's id is a UUID of version 7 and a node, with the prefix `sync-` for a /runsync; ids have
/// only letters, digits, `-` and `_`; two names cannot be an endpoint's id.
#[tokio::test]
async fn ids() {
    let endpoint = shared("answers-ids", json!({})).await;
    let run = endpoint.submit(echo()).await;
    let sync = id(&endpoint.run_sync("", echo()).await.ok());
    let plain = sync.strip_prefix("sync-").unwrap_or_else(|| panic!("{sync}"));
    for job in [&run, plain] {
        let (uuid, node) = job.split_at(36);
        let is_uuid = uuid.chars().enumerate().all(|(index, c)| match index {
            8 | 13 | 18 | 23 => c == '-',
            14 => c == '7',
            _ => c.is_ascii_hexdigit(),
        });
        assert!(is_uuid && node.len() > 1 && node.starts_with('-'), "{job}");
        assert!(job.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{job}");
    }
    assert_ne!(endpoint.submit(echo()).await, run);
    let made = json!({ "templateId": "answers-ids" });
    let made = id(&endpoint.client.post("/v1/endpoints", &made).await.ok());
    assert!(made.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{made}");
    let kept = "network-volumes registries billing catalog pods clusters account";
    let reserved = ["serverless", "templates", "a.b", "a b", ""].into_iter();
    for reserved in reserved.chain(kept.split(' ')) {
        let body = json!({ "id": reserved, "templateId": "answers-ids" });
        endpoint.client.post("/v1/endpoints", &body).await.refused(400);
    }
}
