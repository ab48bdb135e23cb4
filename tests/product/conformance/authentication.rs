//! Authentication: the accepted forms of a key, and every kind of invalid key, on every route.

use std::time::Duration;

use gristmill_tests::{Answer, Client, Clocked};
use serde_json::{Value, json};

use crate::routes::{Part, Route, Routes};
use crate::support::{Endpoint, UNKNOWN_JOB, clocked, shared};

/// The management API accepts a key only as the bearer credential.
#[tokio::test]
async fn management_takes_a_bearer_key() {
    let endpoint = shared("auth-management", json!({})).await;
    let admin = endpoint.host.admin_key();
    let path = "/v1/endpoints/auth-management";
    let with = |value: String| endpoint.client.with_authorization(Some(&value));
    with(format!("Bearer {admin}")).get(path).await.ok();
    for wrong in [admin.to_owned(), format!("Basic {admin}"), format!("Bearer: {admin}")] {
        with(wrong).get(path).await.refused(401);
    }
}

/// Every operation of the queue API takes a bearer key, and the bare key.
#[tokio::test]
async fn queue_takes_a_bearer_or_bare_key() {
    let endpoint = shared("auth-queue", json!({})).await;
    let admin = endpoint.host.admin_key();
    for value in [format!("Bearer {admin}"), admin.to_owned()] {
        let client = endpoint.client.with_authorization(Some(&value));
        let routes = Routes::of(&client).await;
        let of = |part| routes.in_part(part, &endpoint.id, UNKNOWN_JOB);
        for route in of(Part::Queue).into_iter().chain(of(Part::OpenAi)) {
            if route.path.ends_with("purge-queue") && route.path.starts_with("/sdk") {
                continue; // two purges in ten seconds are all that there are
            }
            let answer = call(&client, &route).await;
            let is_admitted = matches!(answer.status, 200 | 404) || has_failed(&route, &answer);
            assert!(is_admitted, "{route:?}: {answer:?}");
        }
    }
}

/// Whether this is the job of an OpenAI client, which names no operation of this handler, and
/// fails.
fn has_failed(route: &Route, answer: &Answer) -> bool {
    let is_openai = route.path.contains("/openai/");
    is_openai && answer.status == 500 && answer.text.contains(r#""code":"job_failed""#)
}

async fn call(client: &Client, route: &Route) -> Answer {
    let request = client.request(route.method.clone(), &route.path);
    client
        .send(match &route.body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
}

/// Calls, and once more after a 429, since so many calls without a valid key exceed their limit.
async fn call_again_after_retry_after(client: &Client, route: &Route) -> Answer {
    let answer = call(client, route).await;
    if answer.status != 429 {
        return answer;
    }
    let seconds = answer.header("retry-after").unwrap().parse().unwrap();
    // The subject: the time that the host asks for.
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    call(client, route).await
}

/// Creates a key; returns its id and text.
async fn make_key(endpoint: &Endpoint<Clocked>, settings: &Value) -> (String, String) {
    let made = endpoint.client.post("/v1/keys", settings).await.ok();
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

/// A key with every scope except those that permit the route.
fn all_scopes_but(needed: &str) -> Value {
    // `admin` permits everything, `manage` what `metrics` permits, and `submit` what `read`
    // permits.
    match needed {
        "admin" => json!(["manage", "submit", "read"]),
        "manage" => json!(["submit", "read", "metrics"]),
        "metrics" => json!(["submit", "read"]),
        "submit" => json!(["manage", "read"]),
        _ => json!(["manage"]),
    }
}

/// A missing or wrong key, and a key without permission, gives 401 on every route of both APIs,
/// whatever its fault.
#[tokio::test]
async fn wrong_keys_on_every_route() {
    let endpoint = clocked("auth-wrong", json!({})).await;
    let other = endpoint.host.deploy_image("playground:latest", "auth-other", json!({})).await;
    let admin = endpoint.host.admin_key();
    let all = json!(["admin", "manage", "submit", "read"]);

    let (revoked_id, revoked) = make_key(&endpoint, &json!({ "name": "r", "scopes": all })).await;
    let deleted = endpoint.client.delete(&format!("/v1/keys/{revoked_id}")).await;
    assert_eq!(deleted.status, 204);
    let expiring = json!({ "name": "e", "scopes": all, "expiresInSeconds": 60 });
    let (_, expired) = make_key(&endpoint, &expiring).await;
    endpoint.host.advance(59_999);
    endpoint.client.with_key(&expired).get("/v1/keys").await.ok();
    endpoint.host.advance(1);

    let (id, secret) = admin.strip_prefix("gm_").unwrap().split_once('_').unwrap();
    let other_secret: String = secret.chars().rev().collect();
    let kinds = [
        ("no header", None),
        ("an empty header", Some(String::new())),
        ("a scheme alone", Some("Bearer".to_owned())),
        ("an empty key", Some("Bearer ".to_owned())),
        ("a wrong scheme", Some(format!("Basic {admin}"))),
        ("garbage", Some("Bearer gm_\u{e9}%00_\u{fffd}".to_owned())),
        ("two keys", Some(format!("Bearer {admin} {admin}"))),
        ("an unknown id", Some(format!("Bearer gm_aaaaaaaaaaaa_{secret}"))),
        ("a wrong secret", Some(format!("Bearer gm_{id}_{other_secret}"))),
        ("half a secret", Some(format!("Bearer {}", &admin[..admin.len() - 8]))),
        ("a revoked key", Some(format!("Bearer {revoked}"))),
        ("an expired key", Some(format!("Bearer {expired}"))),
    ];
    let routes = Routes::of(&endpoint.client).await.of_all(&endpoint.id, UNKNOWN_JOB);
    for scope in ["admin", "manage", "metrics", "submit", "read"] {
        let lacking = json!({ "name": "l", "scopes": all_scopes_but(scope) });
        let elsewhere = json!({ "name": "o", "scopes": [scope], "endpoints": [other] });
        let bearer = async |settings| format!("Bearer {}", make_key(&endpoint, &settings).await.1);
        let insufficient = [
            ("a key without the scope", Some(bearer(lacking).await)),
            ("a key for another endpoint", Some(bearer(elsewhere).await)),
        ];
        for route in routes.iter().filter(|route| route.scope == scope) {
            for (kind, value) in kinds.iter().chain(&insufficient) {
                let client = endpoint.client.with_authorization(value.as_deref());
                let answer = call_again_after_retry_after(&client, route).await;
                assert_eq!(answer.status, 401, "{kind}: {route:?}: {answer:?}");
                if route.path.contains("/openai/") {
                    answer.refused_as_openai(401);
                } else {
                    answer.refused(401);
                }
            }
        }
    }
    // With the required scope only, the same calls are admitted.
    for (scope, of_routes) in [
        ("admin", "admin"),
        ("manage", "manage"),
        ("manage", "metrics"),
        ("metrics", "metrics"),
        ("submit", "submit"),
        ("read", "read"),
    ] {
        let (_, key) = make_key(&endpoint, &json!({ "name": "k", "scopes": [scope] })).await;
        let client = endpoint.client.with_key(&key);
        for route in routes.iter().filter(|route| route.scope == of_routes) {
            let answer = call(&client, route).await;
            let is_admitted =
                matches!(answer.status, 200 | 400 | 404) || has_failed(route, &answer);
            assert!(is_admitted, "{route:?}: {answer:?}");
        }
    }
}
