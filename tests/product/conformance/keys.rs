//! Our decisions where the contract is silent, about keys.

use std::os::unix::fs::PermissionsExt as _;

use gristmill_tests::files_without_keys;
use serde_json::{Value, json};

use crate::support::{echo, shared};

/// Keys: any case of `Bearer`, or bare, on the queue API; 256 random bits whose text is shown once
/// and stored nowhere; scopes, named endpoints, revocation; the first start's admin key is in a
/// file that only its owner can read.
#[tokio::test]
async fn kinds_and_keeping() {
    let endpoint = shared("answers-keys", json!({})).await;
    let (client, admin) = (&endpoint.client, endpoint.host.admin_key());
    for value in [admin.to_owned(), format!("bearer {admin}"), format!("BEARER {admin}")] {
        client.with_authorization(Some(&value)).get(&endpoint.path("health")).await.ok();
    }
    // Standard output is no terminal here, so it may be kept, as in the journal of systemd.
    assert!(endpoint.host.ready().get("adminKey").is_none());
    let file = std::path::absolute(endpoint.host.data_dir().join("admin.key")).unwrap();
    assert_eq!(endpoint.host.ready()["adminKeyFile"], file.display().to_string());
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), admin);
    let file = std::fs::metadata(file).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);

    let settings = json!({ "name": "one", "scopes": ["submit"], "endpoints": ["answers-keys"] });
    let made = client.post("/v1/keys", &settings).await.ok();
    let text = made["key"].as_str().unwrap();
    let (key_id, secret) = text.strip_prefix("gm_").unwrap().split_once('_').unwrap();
    assert_eq!(secret.len(), 43, "256 bits in base64");
    let listed = client.get("/v1/keys").await;
    assert!(listed.text.contains(key_id) && !listed.text.contains(secret));
    assert!(!endpoint.host.log().contains(secret));
    for (file, bytes) in files_without_keys(&endpoint.host.data_dir()) {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{}", file.display());
    }

    let one = client.with_key(text);
    assert_eq!(one.finish(&endpoint.id, echo()).await["status"], "COMPLETED");
    shared("answers-keys-other", json!({})).await;
    one.get("/v2/answers-keys-other/health").await.refused(401);
    one.get("/v1/endpoints/answers-keys").await.refused(401);
    assert_eq!(client.delete(&format!("/v1/keys/{key_id}")).await.status, 204);
    one.get(&endpoint.path("health")).await.refused(401);

    let wrong: [Value; 4] = [
        json!({}),
        json!({ "name": "x" }),
        json!({ "name": "x", "scopes": [] }),
        json!({ "name": "x", "scopes": ["everything"] }),
    ];
    for wrong in wrong {
        client.post("/v1/keys", &wrong).await.refused(400);
    }
}
