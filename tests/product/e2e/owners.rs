//! Owners: who creates their keys, how they share public and platform templates, and how older,
//! single-owner hosts keep working.

use gristmill_tests::{Client, TestHost, eventually, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

use crate::handlers::{echo, variant};

fn echo_input() -> Value {
    json!({ "op": "echo", "value": 1 })
}

/// A playground with another digest.
fn playground(label: &str) -> Vec<u8> {
    variant(&std::fs::read(guests::playground()).unwrap(), label)
}

async fn template(client: &Client, id: &str, image: &str, fields: Value) -> Value {
    let mut template = json!({ "id": id, "name": id, "imageName": image });
    template.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    client.post("/v1/templates", &template).await.ok()
}

async fn bind(client: &Client, endpoint: &str, template: &str) -> gristmill_tests::Answer {
    client.post("/v1/endpoints", &json!({ "id": endpoint, "templateId": template })).await
}

#[tokio::test]
async fn only_an_admin_makes_keys_and_admin_keys_are_the_operators() {
    let host = shared_host();
    let new = |owner: &str, scope: &str| json!({ "name": "k", "owner": owner, "scopes": [scope] });
    let made = host.client.post("/v1/keys", &new("keys-miller", "manage")).await.ok();
    assert_eq!(made["owner"], "keys-miller");
    let listed = host.client.get("/v1/keys").await.ok();
    let listed = listed.as_array().unwrap().iter().find(|key| key["id"] == made["id"]).unwrap();
    assert_eq!(listed["owner"], "keys-miller");
    let own = host.client.post("/v1/keys", &json!({ "name": "k", "scopes": ["read"] })).await.ok();
    assert_eq!(own["owner"], "default");

    let refused = host.client.post("/v1/keys", &new("keys-miller", "admin")).await.refused(400);
    assert!(refused.contains("admin") && refused.contains("manage, submit and read"), "{refused}");
    let both = json!({ "name": "k", "owner": "x", "scopes": ["read", "admin"] });
    host.client.post("/v1/keys", &both).await.refused(400);
    host.client.post("/v1/keys", &new("default", "admin")).await.ok();
    let long = "x".repeat(129);
    for wrong in ["", "a b", "a/b", "../a", "a.b", "ä", "a\n", &long] {
        let refused = host.client.post("/v1/keys", &new(wrong, "read")).await.refused(400);
        assert!(refused.contains("`owner`"), "{wrong}: {refused}");
    }
    let miller = host.client.with_key(made["key"].as_str().unwrap());
    for owner in ["keys-miller", "default", "other"] {
        miller.post("/v1/keys", &new(owner, "read")).await.refused(401);
    }
    miller.get("/v1/keys").await.refused(401);
    miller.get("/metrics").await.refused(401);
    miller.get("/v1/backup").await.refused(401);
    miller.post_empty("/v1/secrets/rotate").await.refused(401);
}

#[tokio::test]
async fn an_admin_key_reaches_what_all_owners_have() {
    let host = shared_host();
    let miller = host.client_of("admin-miller").await;
    miller.upload("admin-mill:1", playground("admin")).await.ok();
    template(&miller, "admin-t", "admin-mill:1", json!({})).await;
    bind(&miller, "admin-e", "admin-t").await.ok();
    let job = miller.finish("admin-e", echo_input()).await["id"].clone();
    let admin = &host.client;
    assert_eq!(admin.get("/v1/endpoints/admin-e").await.ok()["userId"], "admin-miller");
    assert_eq!(admin.status("admin-e", job.as_str().unwrap()).await.ok()["status"], "COMPLETED");
    let listed = admin.get("/v1/endpoints").await.ok();
    assert!(listed.as_array().unwrap().iter().any(|endpoint| endpoint["id"] == "admin-e"));
    admin.patch("/v1/endpoints/admin-e", &json!({ "workersMax": 3 })).await.ok();
    admin.patch("/v1/templates/admin-t", &json!({ "readme": "seen" })).await.ok();
    let seen = miller.get("/v1/templates/admin-t?includeEndpointBoundTemplates=true").await.ok();
    assert_eq!(seen["readme"], "seen");
    assert_eq!(miller.get("/v1/endpoints/admin-e").await.ok()["workersMax"], 3);
    // Names of handlers are separate for each owner: the operator has none of this name.
    admin.get("/v1/handlers/admin-mill:1").await.refused(404);
    // Even an endpoint of the operator cannot use another owner's private template.
    bind(admin, "admin-e2", "admin-t").await.refused(400);
    assert_eq!(admin.delete("/v1/endpoints/admin-e").await.status, 204);
}

#[tokio::test]
async fn ids_are_the_hosts_and_handlers_names_an_owners_own() {
    let host = shared_host();
    let [a, b] = [host.client_of("ids-a").await, host.client_of("ids-b").await];
    a.upload("ids-mill:1", playground("ids-a")).await.ok();
    let theirs = b.upload("ids-mill:1", echo("ids-b")).await.ok();
    assert_ne!(a.get("/v1/handlers/ids-mill:1").await.ok()["sha256"], theirs["sha256"]);
    template(&a, "ids-t", "ids-mill:1", json!({ "name": "ids" })).await;
    let same_name = json!({ "id": "ids-t2", "name": "ids", "imageName": "ids-mill:1" });
    b.post("/v1/templates", &same_name).await.ok();
    bind(&a, "ids-e", "ids-t").await.ok();
    // A used id is refused with the same sentence, whichever owner has it.
    bind(&b, "ids-e2", "ids-t2").await.ok();
    let rest = ": ids are unique on this host, and another owner may have this one; choose another id \
                (`gristmill deploy`: another `--name`)";
    let sentence = |object: &str| format!("{object} exists already{rest}");
    assert_eq!(bind(&b, "ids-e", "ids-t2").await.refused(400), sentence("endpoint `ids-e`"));
    assert_eq!(bind(&b, "ids-e2", "ids-t2").await.refused(400), sentence("endpoint `ids-e2`"));
    let taken = json!({ "id": "ids-t", "name": "x", "imageName": "x:1" });
    assert_eq!(b.post("/v1/templates", &taken).await.refused(400), sentence("template `ids-t`"));
    // Each runs its own owner's handler of the name.
    assert_eq!(a.finish("ids-e", echo_input()).await["output"], json!({ "echo": 1 }));
    assert_eq!(b.finish("ids-e2", echo_input()).await["output"], echo_input());
    assert_eq!(b.delete("/v1/endpoints/ids-e2").await.status, 204);
    assert_eq!(b.delete("/v1/handlers/ids-mill:1").await.status, 204);
    assert_eq!(a.finish("ids-e", echo_input()).await["output"], json!({ "echo": 1 }));
}

#[tokio::test]
async fn only_uploaders_may_name_a_component_by_its_digest() {
    let host = shared_host();
    let [a, b] = [host.client_of("digest-a").await, host.client_of("digest-b").await];
    let bytes = playground("digest");
    let uploaded = a.upload("digest:1", bytes.clone()).await.ok();
    let image = format!("x@sha256:{}", uploaded["sha256"].as_str().unwrap());
    template(&b, "digest-t", &image, json!({})).await;
    bind(&b, "digest-e", "digest-t").await.ok();
    let job = b.submit("digest-e", echo_input()).await;
    eventually("a reason to be shown", async || {
        let status = b.status("digest-e", &job).await.ok();
        assert_eq!(status["status"], "IN_QUEUE", "{status}");
        status["reason"].as_str().is_some_and(|why| why.contains("no component")).then_some(())
    })
    .await;
    // Uploading the same bytes is enough.
    b.upload("mine:1", bytes).await.ok();
    b.patch("/v1/endpoints/digest-e", &json!({ "workersMax": 2 })).await.ok();
    assert_eq!(b.finished("digest-e", &job).await["output"], json!({ "echo": 1 }));
    // It stays for one owner when the other one removes it.
    assert_eq!(a.delete("/v1/handlers/digest:1").await.status, 204);
    assert_eq!(b.finish("digest-e", echo_input()).await["output"], json!({ "echo": 1 }));
    template(&a, "digest-a", &image, json!({})).await;
    bind(&a, "digest-ea", "digest-a").await.ok();
    let job = a.submit("digest-ea", echo_input()).await;
    eventually("it to be no longer the first owner's", async || {
        let status = a.status("digest-ea", &job).await.ok();
        status["reason"].as_str().is_some_and(|why| why.contains("no component")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_public_template_runs_for_others_until_it_is_private_again() {
    let host = shared_host();
    let [a, b] = [host.client_of("public-a").await, host.client_of("public-b").await];
    a.upload("public:1", playground("public")).await.ok();
    template(&a, "public-t", "public:1", json!({ "env": { "GRAIN": "rye" } })).await;
    let refused = bind(&b, "public-b", "public-t").await.refused(400);
    assert_eq!(
        refused,
        bind(&b, "public-b", "public-x").await.refused(400).replace("public-x", "public-t")
    );
    a.patch("/v1/templates/public-t", &json!({ "isPublic": true })).await.ok();
    bind(&b, "public-b", "public-t").await.ok();
    assert_eq!(b.finish("public-b", echo_input()).await["output"], json!({ "echo": 1 }));
    // The other owner cannot change it.
    for body in [json!({ "readme": "taken" }), json!({ "isPublic": false })] {
        b.patch("/v1/templates/public-t", &body).await.refused(404);
    }
    b.delete("/v1/templates/public-t").await.refused(404);
    // Another owner's endpoint does not hide the template from its owner, and is not shown to them.
    a.get("/v1/templates/public-t").await.ok();
    let refused = a.delete("/v1/templates/public-t").await.refused(400);
    assert!(refused.contains("another owner's") && !refused.contains("public-b"), "{refused}");
    let refused = a.delete("/v1/handlers/public:1").await.refused(400);
    assert!(refused.contains("another owner's") && !refused.contains("public-b"), "{refused}");
    // Private again: later changes are visible only to the owner.
    let private = json!({ "isPublic": false, "env": { "SECRET": "new" } });
    a.patch("/v1/templates/public-t", &private).await.ok();
    let job = b.submit("public-b", echo_input()).await;
    eventually("the job to wait with a reason", async || {
        let status = b.status("public-b", &job).await.ok();
        assert_eq!(status["status"], "IN_QUEUE", "{status}");
        status["reason"].as_str().is_some_and(|why| why.contains("no longer public")).then_some(())
    })
    .await;
    b.get("/v1/templates/public-t?includePublicTemplates=true&includeEndpointBoundTemplates=true")
        .await
        .refused(404);
    a.patch("/v1/templates/public-t", &json!({ "isPublic": true })).await.ok();
    b.patch("/v1/endpoints/public-b", &json!({ "workersMax": 2 })).await.ok();
    assert_eq!(b.finished("public-b", &job).await["status"], "COMPLETED");
}

#[tokio::test]
async fn an_endpoint_of_another_owner_does_not_keep_a_template_that_is_private_again() {
    let mut host = TestHost::start();
    let [a, b] = [host.client_of("pinned-a").await, host.client_of("pinned-b").await];
    a.upload("pinned:1", playground("pinned")).await.ok();
    template(&a, "pinned-t", "pinned:1", json!({ "isPublic": true })).await;
    bind(&b, "pinned-b", "pinned-t").await.ok();
    a.patch("/v1/templates/pinned-t", &json!({ "isPublic": false })).await.ok();
    a.patch("/v1/templates/pinned-t", &json!({ "isServerless": false })).await.ok();
    let job = b.submit("pinned-b", echo_input()).await;
    assert_eq!(a.delete("/v1/templates/pinned-t").await.status, 204);
    // Another owner's template of the same id is not the one that the endpoint names.
    host.start_again();
    let [a, b] = [host.client_of("pinned-a").await, host.client_of("pinned-b").await];
    a.upload("pinned:1", playground("pinned")).await.ok();
    template(&a, "pinned-t", "pinned:1", json!({ "isPublic": true })).await;
    eventually("the job to wait with a reason", async || {
        let status = b.status("pinned-b", &job).await.ok();
        assert_eq!(status["status"], "IN_QUEUE", "{status}");
        status["reason"].as_str().is_some_and(|why| why.contains("was deleted")).then_some(())
    })
    .await;
    let refused = b.post("/v1/endpoints/pinned-b/rollback", &json!({})).await.refused(400);
    assert!(refused.contains("was deleted"), "{refused}");
    b.patch("/v1/endpoints/pinned-b", &json!({ "templateId": "pinned-t" })).await.ok();
    assert_eq!(b.finished("pinned-b", &job).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_rollback_writes_ones_own_template_only() {
    let host = shared_host();
    let [a, b] = [host.client_of("back-a").await, host.client_of("back-b").await];
    a.upload("back:1", playground("back-1")).await.ok();
    template(&a, "back-t", "back:1", json!({ "isPublic": true })).await;
    bind(&a, "back-a", "back-t").await.ok();
    bind(&b, "back-b", "back-t").await.ok();
    a.upload("back:1", echo("back-2")).await.ok();
    assert_eq!(b.finish("back-b", echo_input()).await["output"], echo_input());
    let path = "/v1/templates/back-t?includeEndpointBoundTemplates=true";
    let before = a.get(path).await.ok();
    for client in [&b, &host.client] {
        let refused = client.post_empty("/v1/endpoints/back-b/rollback").await.refused(400);
        assert!(refused.contains("another owner's"), "{refused}");
    }
    assert_eq!(a.get(path).await.ok(), before);
    // The owner rolls back; another owner's endpoint on the public template does not prevent it.
    a.post_empty("/v1/endpoints/back-a/rollback").await.ok();
    assert_eq!(a.finish("back-a", echo_input()).await["output"], json!({ "echo": 1 }));
    // A handler of another owner's template cannot be a rollback target.
    b.upload("own:1", echo("back-own")).await.ok();
    template(&b, "back-own", "own:1", json!({})).await;
    b.patch("/v1/endpoints/back-b", &json!({ "templateId": "back-own" })).await.ok();
    let refused = b.post_empty("/v1/endpoints/back-b/rollback").await.refused(400);
    assert!(refused.contains("no longer stored"), "{refused}");
}

#[tokio::test]
async fn platform_templates_are_the_operators_to_make() {
    let host = shared_host();
    let miller = host.client_of("platform-miller").await;
    let admin = &host.client;
    host.upload("platform:1", playground("platform")).await.ok();
    template(admin, "platform-t", "platform:1", json!({ "isPlatform": true })).await;
    let path = "/v1/templates/platform-t";
    for client in [admin, &miller] {
        client.get(path).await.refused(404);
        client.get(&format!("{path}?includePublicTemplates=true")).await.refused(404);
        let found = client.get(&format!("{path}?includePlatformTemplates=true")).await.ok();
        assert_eq!((&found["isPlatform"], &found["isRunpod"]), (&json!(true), &json!(true)));
    }
    bind(&miller, "platform-e", "platform-t").await.ok();
    assert_eq!(miller.finish("platform-e", echo_input()).await["output"], json!({ "echo": 1 }));
    miller.patch(path, &json!({ "readme": "taken" })).await.refused(404);
    // A template cannot be made a platform template, neither by its owner nor by the operator.
    let new = json!({ "id": "platform-x", "name": "x", "imageName": "x:1", "isPlatform": true });
    miller.post("/v1/templates", &new).await.refused(401);
    template(&miller, "platform-own", "x:1", json!({ "isPlatform": false })).await;
    let own = "/v1/templates/platform-own";
    miller.patch(own, &json!({ "isPlatform": true })).await.refused(401);
    miller.patch(own, &json!({ "isPlatform": false, "readme": "x" })).await.ok();
    let refused = admin.patch(own, &json!({ "isPlatform": true })).await.refused(400);
    assert!(refused.contains("isPlatform"), "{refused}");
    let manager = admin.with_scopes(&["manage"]).await;
    manager.patch(path, &json!({ "isPlatform": false })).await.refused(401);
    manager.patch(path, &json!({ "readme": "official" })).await.ok();
    admin.patch(path, &json!({ "isPlatform": false })).await.ok();
    miller.get(&format!("{path}?includePlatformTemplates=true")).await.refused(404);
}

#[tokio::test]
async fn a_template_for_pods_is_not_for_endpoints() {
    let host = shared_host();
    let client = &host.client;
    template(client, "pods-t", "x:1", json!({ "isServerless": false })).await;
    let refused = bind(client, "pods-e", "pods-t").await.refused(400);
    assert!(refused.contains("isServerless"), "{refused}");
    client.patch("/v1/templates/pods-t", &json!({ "isServerless": true })).await.ok();
    bind(client, "pods-e", "pods-t").await.ok();
    let refused = client.patch("/v1/templates/pods-t", &json!({ "isServerless": false })).await;
    assert!(refused.refused(400).contains("isServerless"));
    template(client, "pods-t2", "x:1", json!({ "isServerless": false })).await;
    client.patch("/v1/endpoints/pods-e", &json!({ "templateId": "pods-t2" })).await.refused(400);
    client.patch("/v1/endpoints/pods-e", &json!({ "templateId": "pods-t" })).await.ok();
}

/// The id of a deleted endpoint is free for all owners, and has no data of the previous endpoint.
#[tokio::test]
async fn the_next_owner_of_an_id_finds_nothing_of_the_one_before() {
    let host = shared_host();
    let [a, b] = [host.client_of("next-a").await, host.client_of("next-b").await];
    for (client, template_id) in [(&a, "next-ta"), (&b, "next-tb")] {
        client.upload("next:1", playground("next")).await.ok();
        template(client, template_id, "next:1", json!({})).await;
    }
    bind(&a, "next-e", "next-ta").await.ok();
    let log = json!({ "op": "log", "message": "of the first" });
    let submission = json!({ "input": log, "webhook": "http://hooks.invalid/first" });
    let job = a.post("/v2/next-e/run", &submission).await.ok()["id"].as_str().unwrap().to_owned();
    a.finished("next-e", &job).await;
    let logs = a.request(Method::GET, "/v1/endpoints/next-e/logs?tail=0");
    let mut follow = logs.header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(a.delete("/v1/endpoints/next-e").await.status, 204);
    bind(&b, "next-e", "next-tb").await.ok();
    b.finish("next-e", json!({ "op": "log", "message": "of the second" })).await;
    b.status("next-e", &job).await.refused(404);
    for path in ["logs", "deliveries", "releases"] {
        let seen = b.get(&format!("/v1/endpoints/next-e/{path}")).await;
        assert!(!seen.text.contains("first"), "{seen:?}");
    }
    assert_eq!(b.health("next-e").await["jobs"]["completed"], 1);
    assert!(!b.get("/v2/next-e/requests").await.text.contains(&job));
    a.status("next-e", &job).await.refused(404);
    // The first owner still follows, and reads no line of the second owner.
    let mut seen = String::new();
    while let Ok(Some(part)) = follow.chunk().await {
        seen += &String::from_utf8_lossy(&part);
    }
    assert!(!seen.contains("of the second"), "{seen}");
}

/// Limits count for each owner: the calls of one owner do not reduce another one's.
#[tokio::test]
async fn one_owners_calls_are_not_counted_for_another() {
    let host = TestHost::start_with_clock::<&str>(&[]);
    let [a, b] = [host.client_of("a").await, host.client_of("b").await];
    for (client, name) in [(&a, "a-e"), (&b, "b-e")] {
        template(client, &format!("{name}-t"), "none:1", json!({})).await;
        bind(client, name, &format!("{name}-t")).await.ok();
    }
    for _ in 0..2 {
        a.purge("a-e").await.ok();
    }
    a.purge("a-e").await.refused(429);
    b.purge("b-e").await.ok();
    // The operator's calls on an owner's endpoint do not reduce the owner's limit.
    for _ in 0..2 {
        host.client().purge("b-e").await.ok();
    }
    host.client().purge("b-e").await.refused(429);
    b.purge("b-e").await.ok();
}
