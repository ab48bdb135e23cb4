//! A browser on the machine of a host without keys: any website can make it send requests.

use gristmill_tests::{Answer, Client, TestHost, guests, shared_host};
use reqwest::Method;
use serde_json::json;

async fn from_site(client: &Client, method: Method, path: &str, site: &str) -> Answer {
    client.send(client.request(method, path).header("sec-fetch-site", site)).await
}

#[tokio::test]
async fn a_website_starts_no_job_and_no_backup_on_a_host_without_keys() {
    let host = TestHost::start_with(&["--no-key"]);
    let client = host.client().with_authorization(None);
    let endpoint = host.deploy(&guests::echo(), "site", json!({})).await;
    let listing = client.path(&endpoint, "openai/v1/models");
    // As for an image, a link or a script of a website: a GET without an Origin.
    for site in ["cross-site", "same-site"] {
        let stream = client.path(&endpoint, "stream/x");
        for path in
            [listing.as_str(), "/v1/backup", "/v1/docs/index.html", &stream, "/openapi.json"]
        {
            let refused = from_site(&client, Method::GET, path, site).await;
            assert_eq!(refused.status, 401, "{path}: {refused:?}");
        }
        let run = client.path(&endpoint, "run");
        from_site(&client, Method::POST, &run, site).await.refused(401);
        from_site(&client, Method::POST, "/v1/secrets/rotate", site).await.refused(401);
    }
    assert_eq!(client.health(&endpoint).await["jobs"]["completed"], 0);
    // The documentation page, a typed address, and every other program.
    for site in ["same-origin", "none"] {
        from_site(&client, Method::GET, "/openapi.json", site).await.ok();
        from_site(&client, Method::GET, &listing, site).await.ok();
    }
    client.get(&listing).await.ok();
}

#[tokio::test]
async fn a_get_starts_no_job_but_for_the_models() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "openai-get", json!({})).await;
    let client = &host.client;
    for route in ["v1/chat/completions", "v1/x", "v1/modelsx", "v2/models"] {
        let path = client.path(&endpoint, &format!("openai/{route}"));
        let refused = client.get(&path).await;
        refused.refused_as_openai(405);
        assert_eq!(refused.header("allow"), Some("POST"), "{route}");
        let head = client.send(client.request(Method::HEAD, &path)).await;
        assert_eq!(head.status, 405, "{route}");
    }
    assert_eq!(client.health(&endpoint).await["jobs"]["completed"], 0);
    client.get(&client.path(&endpoint, "openai/v1/models/mill")).await.ok();
}

#[tokio::test]
async fn every_answer_forbids_browsers_to_guess_its_type() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "site-headers", json!({})).await;
    let done = host.client.finish(&endpoint, json!({})).await;
    let job = done["id"].as_str().unwrap();
    let get = [
        format!("/v2/{endpoint}/status/{job}"),
        format!("/sdk/v2/{endpoint}/stream/{job}"),
        format!("/v2/{endpoint}/health"),
        format!("/v2/{endpoint}/requests"),
        format!("/v2/{endpoint}/openai/v1/models"),
        format!("/v1/endpoints/{endpoint}/logs"),
        "/v1/templates".into(),
        "/v1/docs".into(),
        "/v1/docs/index.html".into(),
        "/v1/nothing".into(),
        "/v2/site-headers/tags/list".into(),
        "/v2/a/b/c/manifests/latest".into(),
        "/v2/".into(),
        "/openapi.json".into(),
        "/metrics".into(),
        "/nowhere".into(),
    ];
    let no_key = host.client.with_authorization(None);
    for path in &get {
        for client in [&host.client, &no_key] {
            for method in [Method::GET, Method::PUT, Method::HEAD] {
                let answer = client.send(client.request(method, path)).await;
                assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
                let policy = answer.header("cross-origin-resource-policy");
                assert_eq!(policy, Some("same-origin"), "{answer:?}");
            }
        }
    }
    // A browser then accepts a script or a style of the page only with the correct type.
    let page = no_key.get("/v1/docs/index.html").await.text;
    for name in page.split('"').filter(|text| text.ends_with(".js") || text.ends_with(".css")) {
        let name = name.trim_start_matches("./");
        let file = no_key.get(&format!("/v1/docs/{name}")).await;
        let expected = if name.ends_with(".js") { "javascript" } else { "text/css" };
        let media_type = file.header("content-type").unwrap_or_default();
        assert!(media_type.contains(expected), "{name}: {media_type}");
    }
}
