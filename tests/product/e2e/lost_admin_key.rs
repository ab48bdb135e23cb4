//! The operator can always create keys: the last admin key cannot be revoked, and a lost admin key
//! is replaced with the help of a start with `--no-key`.

use gristmill_tests::TestHost;
use serde_json::json;

#[tokio::test]
async fn a_lost_admin_key_is_replaced_by_a_start_without_keys() {
    let mut host = TestHost::start();
    let client = host.client();
    let first = client.get("/v1/keys").await.ok()[0]["id"].as_str().unwrap().to_owned();
    let revoke = format!("/v1/keys/{first}");
    let short = json!({ "name": "short", "scopes": ["admin"], "expiresInSeconds": 3_600 });
    client.post("/v1/keys", &short).await.ok();
    let refused = client.delete(&revoke).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("conflict")), "{refused:?}");
    assert!(refused.text.contains("no other admin key without an expiry"), "{refused:?}");
    client.get("/v1/keys").await.ok();

    // The text of the first key is lost: docs/guides/keys.md.
    host.start_again_with(&["--no-key"]);
    let admin = json!({ "name": "admin", "scopes": ["admin"] });
    let made = host.client().post("/v1/keys", &admin).await.ok();
    host.start_again_with::<&str>(&[]);
    let client = host.client().with_key(made["key"].as_str().unwrap());
    assert_eq!(client.delete(&revoke).await.status, 204, "there is another one now");
    assert_eq!(host.client().get("/v1/keys").await.status, 401);
    assert_eq!(client.get("/v1/keys").await.ok().as_array().unwrap().len(), 2);
}
