//! Our decisions where the contract is silent, about `/stream`: delivery, formats, splitting.

use std::time::{Duration, Instant};

use gristmill_tests::{Answer, guests, parse_events, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{MIB, clocked, echo, forever, id, one_worker, shared};

fn indexes(answer: &Answer) -> Vec<u64> {
    answer.chunks().iter().map(|c| c["metrics"]["stream_index"].as_u64().unwrap()).collect()
}

/// A chunk over 1 MB is split: a string on character boundaries, any other value as strings of its
/// JSON text with `part` and `parts`. In the job's `output` the value is whole, so that the shape
/// of a result does not depend on its size.
#[tokio::test]
async fn oversize_chunk() {
    let host = shared_host();
    let tokens = host.deploy(&guests::token_stream(), "oversize-string", json!({})).await;
    // Characters of two bytes each, so that a cut at 1 MB would split one of them.
    let word = format!("a{}", "é".repeat(MIB));
    let done = host.client.finish(&tokens, json!({ "prompt": word })).await;
    let parts = host.client.stream(&tokens, &id(&done)).await.chunks();
    assert!(parts.len() > 2, "{} parts", parts.len());
    assert!(parts.iter().all(|part| part["output"].as_str().unwrap().len() <= MIB));
    let text: String = parts.iter().map(|part| part["output"].as_str().unwrap()).collect();
    assert!(text == word, "not a character is lost or broken");
    assert!(done["output"] == json!([word]), "a string is whole in the output");

    let endpoint = shared("oversize-value", json!({})).await;
    let value = json!({ "rye": "x".repeat(MIB), "oats": [1, 2.5, null] });
    let done = endpoint.finish(json!({ "op": "emit", "values": [value] })).await;
    let parts = endpoint.stream(&id(&done)).await.chunks();
    assert!(parts.len() > 1);
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        assert_eq!((&part["part"], &part["parts"]), (&json!(index), &json!(parts.len())));
        let piece = part["output"].as_str().unwrap();
        assert!(piece.len() <= MIB);
        text.push_str(piece);
    }
    assert!(serde_json::from_str::<Value>(&text).unwrap() == value);
    assert!(done["output"] == json!([value]), "a value is whole in the output");
}

/// Two mounts: an array with the headers X-Job-Status and X-Stream-Next, and the object for SDKs;
/// everything else is the same on both, whatever the headers of the call.
#[tokio::test]
async fn two_mounts() {
    let endpoint = shared("mounts", json!({})).await;
    let done = endpoint.finish(json!({ "op": "stream", "count": 2 })).await;
    let replay = format!("{}?from=0", id(&done));
    let array = endpoint.stream(&replay).await;
    assert_eq!((array.job_status(), array.header("x-stream-next")), ("COMPLETED", Some("2")));
    let object = endpoint.client.sdk().stream(&endpoint.id, &replay).await.ok();
    assert_eq!(object, json!({ "status": "COMPLETED", "stream": array.ok() }));
    for agent in ["RunPod-JS-SDK/1.1.2", "python-requests/2.32"] {
        let path = endpoint.path(&format!("stream/{replay}"));
        let request = endpoint.client.request(Method::GET, &path).header("user-agent", agent);
        let answer = endpoint.client.send(request.header("content-type", "application/json")).await;
        assert_eq!(answer.ok(), array.ok());
    }
    let status = endpoint.client.sdk().status(&endpoint.id, &id(&done)).await.ok();
    assert_eq!(status, endpoint.status(&id(&done)).await.ok());
}

/// `Accept: text/event-stream` gives events on either mount, with the chunk's index as id; a reader
/// that reconnects with Last-Event-ID continues after it.
#[tokio::test]
async fn server_sent_events() {
    let endpoint = shared("events", json!({})).await;
    let done = endpoint.finish(json!({ "op": "stream", "count": 4 })).await;
    for client in [endpoint.client.clone(), endpoint.client.sdk()] {
        let path = client.path(&endpoint.id, &format!("stream/{}", id(&done)));
        for (last, expected) in [(None, vec!["0", "1", "2", "3"]), (Some("1"), vec!["2", "3"])] {
            let request = client.request(Method::GET, &format!("{path}?from=0"));
            let mut request = request.header("accept", "text/event-stream");
            if let Some(last) = last {
                request = request.header("last-event-id", last);
            }
            let answer = client.send(request).await;
            assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
            let events = parse_events(&answer.text);
            let ids: Vec<_> = events.iter().filter_map(|event| event.id.as_deref()).collect();
            assert_eq!(ids, expected);
            let first: Value = serde_json::from_str(&events[0].data).unwrap();
            assert_eq!(first["output"]["i"].to_string(), expected[0]);
        }
    }
}

/// Each call returns the chunks that were not delivered yet, and the answer with a final status has
/// all remaining ones.
#[tokio::test]
async fn undelivered_only() {
    let endpoint = shared("undelivered", json!({})).await;
    let job = endpoint.submit(json!({ "op": "stream", "count": 5, "delay_ms": 1_000 })).await;
    let mut pages = vec![];
    loop {
        let answer = endpoint.stream(&format!("{job}?wait=60000")).await;
        pages.push(indexes(&answer));
        let next = pages.concat().len().to_string();
        assert_eq!(answer.header("x-stream-next"), Some(next.as_str()));
        match answer.job_status() {
            "COMPLETED" => break,
            // On a busy machine the job waits for longer than the call.
            "IN_QUEUE" => assert_eq!(pages.concat(), [] as [u64; 0]),
            status => assert_eq!(status, "IN_PROGRESS"),
        }
    }
    pages.retain(|page| !page.is_empty());
    assert!(pages.len() > 1, "chunks come while the job runs: {pages:?}");
    assert_eq!(pages.concat(), [0, 1, 2, 3, 4]);
    let drained = endpoint.stream(&job).await;
    assert_eq!((drained.chunks(), drained.job_status()), (vec![], "COMPLETED"));
}

/// Of several readers at one time each chunk reaches at least one, and one with `from` gets all.
#[tokio::test]
async fn readers_at_one_time() {
    let endpoint = shared("readers", json!({})).await;
    let job = id(&endpoint.finish(json!({ "op": "stream", "count": 40 })).await);
    let read = || endpoint.stream(&job);
    let (one, two, three) = tokio::join!(read(), read(), read());
    let mut seen: Vec<_> = [one, two, three].iter().flat_map(indexes).collect();
    seen.sort_unstable();
    seen.dedup();
    let all: Vec<_> = (0..40).collect();
    assert_eq!(seen, all);
    assert_eq!(indexes(&endpoint.stream(&format!("{job}?from=0")).await), all);
}

/// Without new chunks a call waits for 4 s, or for `wait`; it wakes on a chunk and on a change of
/// the status.
#[tokio::test]
async fn held_calls() {
    let endpoint = clocked("held", one_worker()).await;
    let job = endpoint.running(forever()).await;
    let begun = Instant::now();
    let empty = endpoint.stream(&format!("{job}?wait=0")).await;
    assert_eq!((empty.chunks(), empty.job_status()), (vec![], "IN_PROGRESS"));
    assert_eq!(endpoint.stream(&job).await.chunks(), Vec::<Value>::new());
    let held = begun.elapsed();
    assert!(held >= Duration::from_millis(3_900) && held < Duration::from_secs(10), "{held:?}");
    let path = format!("{job}?wait=300000");
    let cancelling = async {
        endpoint.client.calls_waiting(1).await;
        endpoint.cancel(&job).await.ok();
    };
    let (ended, ()) = tokio::join!(endpoint.stream(&path), cancelling);
    assert_eq!((ended.chunks(), ended.job_status()), (vec![], "CANCELLED"));

    let job = endpoint.running(json!({ "op": "stream", "count": 2, "delay_ms": 5_000 })).await;
    let woken = endpoint.stream(&format!("{job}?wait=300000")).await;
    assert_eq!((indexes(&woken), woken.job_status()), (vec![0], "IN_PROGRESS"));
    for wrong in ["soon", "", "1.5"] {
        endpoint.stream(&format!("{job}?wait={wrong}")).await.refused(400);
    }
    endpoint.cancel(&job).await.ok();
}

/// `?from=n` reads again from chunk n, without changing the position of delivered chunks.
#[tokio::test]
async fn replay() {
    let endpoint = shared("replay", json!({})).await;
    let job = id(&endpoint.finish(json!({ "op": "stream", "count": 4 })).await);
    assert_eq!(indexes(&endpoint.stream(&format!("{job}?from=1")).await), [1, 2, 3]);
    assert_eq!(indexes(&endpoint.stream(&job).await), [0, 1, 2, 3]);
    assert_eq!(indexes(&endpoint.stream(&format!("{job}?from=0")).await), [0, 1, 2, 3]);
    assert_eq!(indexes(&endpoint.stream(&format!("{job}?from=4")).await), [] as [u64; 0]);
}

/// Each element has `output` and `metrics`; `stream_index` is present even if the handler set none.
#[tokio::test]
async fn stream_index_is_added() {
    let endpoint = shared("stream-index", json!({})).await;
    let job = id(&endpoint.finish(json!({ "op": "stream", "count": 2 })).await);
    let expected: Vec<_> =
        (0..2).map(|i| json!({ "output": { "i": i }, "metrics": { "stream_index": i } })).collect();
    assert_eq!(endpoint.stream(&job).await.chunks(), expected);
}

/// The output of a handler that streams is its returned value, or else the list of its chunks'
/// outputs.
#[tokio::test]
async fn output_of_a_handler_that_streams() {
    let endpoint = shared("stream-list", json!({})).await;
    let done = endpoint.finish(json!({ "op": "stream", "count": 3 })).await;
    assert_eq!(done["output"], json!([{ "i": 0 }, { "i": 1 }, { "i": 2 }]));
    endpoint.stream(&id(&done)).await.ok();
    assert_eq!(endpoint.status(&id(&done)).await.ok(), done, "reading takes nothing away");
    assert_eq!(endpoint.finish(echo()).await["output"], json!({ "echo": "grain" }));
}
