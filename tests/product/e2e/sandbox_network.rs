//! The network: closed, unless the endpoint lists the host.

use gristmill_tests::{LocalServer, guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn a_host_that_is_not_listed_is_denied() {
    let host = shared_host();
    let server = LocalServer::start().await;
    let listed = json!({ "allowedHosts": ["example.com", "127.0.0.1:1"] });
    for (name, settings) in [("network-default", json!({})), ("network-other", listed)] {
        let endpoint = host.deploy(&guests::playground(), name, settings).await;
        let input = json!({ "op": "fetch", "url": server.url("/") });
        let document = host.client.finish(&endpoint, input).await;
        assert_eq!(document["status"], "FAILED", "{document}");
        let error = document["error"].as_str().unwrap().to_lowercase();
        println!("a fetch of a host that is not listed: {error}");
        assert!(error.contains("127.0.0.1") || error.contains("allow"), "{error}");
        let next = host.client.finish(&endpoint, json!({ "op": "echo" })).await;
        assert_eq!(next["status"], "COMPLETED", "{next}");
    }
}

#[tokio::test]
async fn a_listed_host_is_reached_and_redirects_are_returned() {
    let host = shared_host();
    let server = LocalServer::start().await;
    let settings = json!({ "allowedHosts": [server.host()] });
    let endpoint = host.deploy(&guests::playground(), "network-listed", settings.clone()).await;
    let input = json!({ "op": "fetch", "url": server.url("/grain") });
    let document = host.client.finish(&endpoint, input).await;
    let expected = json!({ "status": 200, "length": 17, "body": "hello from /grain" });
    assert_eq!(document["output"], expected, "{document}");
    // The job shows the bytes of the answer's body, and so does the metric.
    let path = format!("timeline/{}", document["id"].as_str().unwrap());
    let timeline = host.client.get(&host.client.path(&endpoint, &path)).await.ok();
    assert_eq!(timeline["usage"]["egressBytes"], 17, "{timeline}");
    let metrics = host.client.get("/metrics").await.text;
    for (direction, bytes) in [("sent", 0), ("received", 17)] {
        let of = format!("{{endpoint=\"network-listed\",direction=\"{direction}\"}}");
        let line = format!("gristmill_outgoing_bytes_total{of} {bytes}\n");
        assert!(metrics.contains(&line), "{line}");
    }
    let input = json!({ "op": "fetch", "url": server.url("/redirect") });
    let document = host.client.finish(&endpoint, input).await;
    assert_eq!(document["output"]["status"], 302, "{document}");

    let endpoint = host.deploy(&guests::fetch(), "network-fetch", settings).await;
    let document = host.client.finish(&endpoint, json!({ "url": server.url("/redirect") })).await;
    assert_eq!(document["output"]["headers"]["location"], "/elsewhere", "{document}");
}

/// A listed name with an address in the host's own network is refused.
#[tokio::test]
async fn a_listed_name_that_leads_to_a_private_address_is_denied() {
    let host = shared_host();
    let server = LocalServer::start().await;
    let port = server.host().split_once(':').unwrap().1.to_owned();
    let settings = json!({ "allowedHosts": [format!("localhost:{port}")] });
    let endpoint = host.deploy(&guests::playground(), "network-private", settings).await;
    let url = format!("http://localhost:{port}/");
    let document = host.client.finish(&endpoint, json!({ "op": "fetch", "url": url })).await;
    assert_eq!(document["status"], "FAILED", "{document}");
    println!("a listed name with a private address: {}", document["error"]);
}

#[tokio::test]
async fn a_list_with_nonsense_is_refused() {
    let host = shared_host();
    host.deploy(&guests::playground(), "network-nonsense", json!({})).await;
    for wrong in [json!(["http://example.com/"]), json!([""]), json!("example.com"), json!([7])] {
        let body = json!({ "allowedHosts": wrong });
        let answer = host.client.patch("/v1/endpoints/network-nonsense", &body).await;
        assert!(answer.refused(400).contains("allowedHosts"), "{answer:?}");
    }
}
