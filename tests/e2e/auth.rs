//! Who may do what: keys, scopes, and the two forms of the Authorization header.

use std::time::Duration;

use gristmill_tests::{Client, Shared, guests, shared_host};
use serde_json::{Value, json};

/// Makes a key and returns its id and a client that uses it.
async fn key(host: &Shared, settings: Value) -> (String, Client, String) {
    let made = host.client.post("/v1/keys", &settings).await.ok();
    let text = made["key"].as_str().unwrap().to_owned();
    (made["id"].as_str().unwrap().to_owned(), host.client.with_key(&text), text)
}

#[tokio::test]
async fn without_a_valid_key_every_call_is_unauthorized() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "auth-none", json!({})).await;
    let admin = host.admin_key();
    let flipped =
        format!("{}{}", &admin[..admin.len() - 1], if admin.ends_with('A') { 'B' } else { 'A' });
    let wrong = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some("Bearer gm_unknown_key".to_owned()),
        Some(format!("Bearer {flipped}")),
        Some(format!("Bearer {}", &admin[..admin.len() - 2])),
        Some(format!("Basic {admin}")),
        Some(flipped),
        Some("Bearer \u{e9}".to_owned()),
    ];
    for value in wrong {
        let client = host.client.with_authorization(value.as_deref());
        client.run(&endpoint, json!({ "op": "echo" })).await.refused(401);
        client.get(&client.path(&endpoint, "health")).await.refused(401);
        client.sdk().status(&endpoint, "no-such-job").await.refused(401);
        // Nobody without a key learns which endpoints and templates exist.
        client.get(&client.path("no-such-endpoint", "health")).await.refused(401);
        client.get("/v1/templates/no-such-template").await.refused(401);
        client.post("/v1/endpoints", &json!({})).await.refused(401);
        client.get("/metrics").await.refused(401);
    }
    assert_eq!(host.client.health(&endpoint).await["jobs"]["inQueue"], 0);
}

#[tokio::test]
async fn the_queue_api_takes_the_bare_key_and_any_case_of_bearer() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "auth-forms", json!({})).await;
    let admin = host.admin_key();
    for value in [admin.to_owned(), format!("bearer {admin}"), format!("BEARER {admin}")] {
        let client = host.client.with_authorization(Some(&value));
        assert_eq!(client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
    }
    // The management API takes `Bearer KEY` only.
    let bare = host.client.with_authorization(Some(admin));
    bare.get("/v1/templates/auth-forms?includeEndpointBoundTemplates=true").await.refused(401);
    let bearer = host.client.with_authorization(Some(&format!("bearer {admin}")));
    bearer.get("/v1/templates/auth-forms?includeEndpointBoundTemplates=true").await.ok();
}

#[tokio::test]
async fn a_key_does_what_its_scopes_say_and_no_more() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "auth-scopes", json!({})).await;
    let done = host.client.finish(&endpoint, json!({ "op": "echo" })).await;
    let job = done["id"].as_str().unwrap();
    let template = "/v1/templates/auth-scopes?includeEndpointBoundTemplates=true";

    let (_, reader, _) = key(&host, json!({ "name": "reader", "scopes": ["read"] })).await;
    reader.status(&endpoint, job).await.ok();
    reader.stream(&endpoint, job).await.ok();
    reader.health(&endpoint).await;
    reader.run(&endpoint, json!({ "op": "echo" })).await.refused(401);
    reader.run_sync(&endpoint, "", json!({ "op": "echo" })).await.refused(401);
    reader.cancel(&endpoint, job).await.refused(401);
    reader.retry(&endpoint, job).await.refused(401);
    reader.purge(&endpoint).await.refused(401);
    reader.get(template).await.refused(401);

    let (_, submitter, _) = key(&host, json!({ "name": "submitter", "scopes": ["submit"] })).await;
    assert_eq!(submitter.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
    submitter.cancel(&endpoint, job).await.ok();
    submitter.get(template).await.refused(401);
    submitter.post("/v1/keys", &json!({ "name": "x", "scopes": ["admin"] })).await.refused(401);

    let (_, manager, _) = key(&host, json!({ "name": "manager", "scopes": ["manage"] })).await;
    manager.get(template).await.ok();
    manager.run(&endpoint, json!({ "op": "echo" })).await.refused(401);
    manager.post("/v1/keys", &json!({ "name": "x", "scopes": ["admin"] })).await.refused(401);

    let (_, both, _) = key(&host, json!({ "name": "both", "scopes": ["manage", "read"] })).await;
    both.get(template).await.ok();
    both.status(&endpoint, job).await.ok();
}

#[tokio::test]
async fn a_key_for_one_endpoint_opens_no_other() {
    let host = shared_host();
    let mine = host.deploy(&guests::playground(), "auth-mine", json!({})).await;
    let other = host.deploy(&guests::playground(), "auth-other", json!({})).await;
    let settings = json!({ "name": "one", "scopes": ["submit"], "endpoints": [mine] });
    let (_, client, _) = key(&host, settings).await;
    assert_eq!(client.finish(&mine, json!({ "op": "echo" })).await["status"], "COMPLETED");
    client.run(&other, json!({ "op": "echo" })).await.refused(401);
    client.get(&client.path(&other, "health")).await.refused(401);
}

#[tokio::test]
async fn revoked_and_expired_keys_are_refused() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "auth-over", json!({})).await;
    let (id, client, _) = key(&host, json!({ "name": "revoked", "scopes": ["read"] })).await;
    client.health(&endpoint).await;
    assert_eq!(host.client.delete(&format!("/v1/keys/{id}")).await.status, 204);
    client.get(&client.path(&endpoint, "health")).await.refused(401);
    host.client.delete(&format!("/v1/keys/{id}")).await.refused(404);

    let settings = json!({ "name": "brief", "scopes": ["read"], "expiresInSeconds": 1 });
    let (_, client, _) = key(&host, settings).await;
    client.health(&endpoint).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    client.get(&client.path(&endpoint, "health")).await.refused(401);
}

#[tokio::test]
async fn a_keys_text_is_shown_once_and_kept_nowhere() {
    let host = shared_host();
    let (id, _, text) = key(&host, json!({ "name": "shown-once", "scopes": ["read"] })).await;
    assert!(text.starts_with("gm_") && text.len() > 40, "256 random bits: {} bytes", text.len());
    let secret = &text[text.len() - 32..];
    let listed = host.client.get("/v1/keys").await;
    assert!(listed.text.contains(&id), "{listed:?}");
    assert!(!listed.text.contains(secret));
    assert!(!host.log().contains(secret));
    for wrong in [json!({}), json!({ "name": "x" }), json!({ "name": "x", "scopes": [] })] {
        host.client.post("/v1/keys", &wrong).await.refused(400);
    }
    let unknown = json!({ "name": "x", "scopes": ["everything"] });
    assert!(host.client.post("/v1/keys", &unknown).await.refused(400).contains("scopes"));
}

#[cfg(unix)]
#[tokio::test]
async fn the_admin_key_is_for_the_operators_eyes_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let host = shared_host();
    let file = host.data_dir().join("admin.key");
    let mode = std::fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    assert_eq!(host.ready()["adminKey"], host.admin_key());
}
