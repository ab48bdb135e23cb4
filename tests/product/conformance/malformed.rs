//! Malformed bodies on every route with a body: a clear refusal, never a 5xx, and no effect.

use gristmill_tests::Shared;
use serde_json::json;

use crate::routes::{Route, Routes};
use crate::support::{Endpoint, echo, shared};

/// Sends this body to every route with a body; asserts a 400 with a sentence.
async fn assert_refused(name: &str, body: impl Fn(&Route) -> Vec<u8>) {
    let endpoint = shared(name, json!({})).await;
    for route in Routes::of(&endpoint.client).await.with_body(&endpoint.id) {
        let body = body(&route);
        let request = endpoint.client.request(route.method.clone(), &route.path);
        let request = request.header("content-type", "application/json").body(body.clone());
        let answer = endpoint.client.send(request).await;
        let shown: String = String::from_utf8_lossy(&body).chars().take(80).collect();
        assert_eq!(answer.status, 400, "{route:?}, `{shown}`: {answer:?}");
        answer.refused(400);
    }
    assert_unharmed(&endpoint).await;
}

async fn assert_unharmed(endpoint: &Endpoint<Shared>) {
    let jobs = &endpoint.health().await["jobs"];
    assert_eq!((&jobs["inQueue"], &jobs["completed"]), (&json!(0), &json!(0)), "{jobs}");
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED");
}

fn valid(route: &Route) -> String {
    route.body.as_ref().unwrap().to_string()
}

/// JSON that is cut, at every byte before its end.
#[tokio::test]
async fn truncated_json() {
    let endpoint = shared("malformed-cut", json!({})).await;
    for route in Routes::of(&endpoint.client).await.with_body(&endpoint.id) {
        let whole = valid(&route);
        for end in 0..whole.len() {
            let request = endpoint.client.request(route.method.clone(), &route.path);
            let answer = endpoint.client.send(request.body(whole[..end].to_owned())).await;
            assert_eq!(answer.status, 400, "{route:?} cut at {end}: {answer:?}");
            answer.refused(400);
        }
    }
    assert_unharmed(&endpoint).await;
}

/// JSON values that are not objects, including an array of an object's values, and text that is not
/// JSON.
#[tokio::test]
async fn no_object() {
    let key = r#"["n",["read"],null,null]"#;
    let template = r#"[null,"n","i:t",0,0,"","",[],[],{},[],"",false,true]"#;
    let submission = " [{},null,null,null]";
    let cases = [
        ["null", "7", "-0.0", "\"text\"", "true", "[]", "[{}]"],
        ["{]", "nul", "'", "{'a':1}", key, template, submission],
    ];
    let cases = cases.concat();
    for (index, text) in cases.iter().enumerate() {
        assert_refused(&format!("malformed-type-{index}"), |_| text.as_bytes().to_vec()).await;
    }
}

/// An object followed by something else.
#[tokio::test]
async fn trailing_text() {
    for (index, tail) in ["x", "{}", ",", "\0"].iter().enumerate() {
        let name = format!("malformed-tail-{index}");
        assert_refused(&name, |route| format!("{}{tail}", valid(route)).into_bytes()).await;
    }
}

/// A field of a wrong type.
#[tokio::test]
async fn wrong_types() {
    let cases = ["7", "[]", "true", "1e400"];
    for (index, value) in cases.iter().enumerate() {
        assert_refused(&format!("malformed-field-{index}"), |route| {
            let field = if is_submission(route) { "policy" } else { "name" };
            let others = valid(route).replacen("\"name\"", "\"another\"", 1);
            format!("{{\"{field}\":{value},{}", &others[1..]).into_bytes()
        })
        .await;
    }
}

fn is_submission(route: &Route) -> bool {
    route.body.as_ref().unwrap().get("input").is_some()
}

/// A duplicate field.
#[tokio::test]
async fn duplicate_fields() {
    assert_refused("malformed-twice", |route| {
        let fields = valid(route);
        let fields = &fields[1..fields.len() - 1];
        format!("{{{fields},{fields}}}").into_bytes()
    })
    .await;
}

/// A string that is not UTF-8, and a lone half of a surrogate pair.
#[tokio::test]
async fn invalid_utf8() {
    for (index, bytes) in [&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"].iter().enumerate() {
        let name = format!("malformed-utf8-{index}");
        assert_refused(&name, |route| {
            let start = if is_submission(route) { "{\"input\":{\"a\":\"" } else { "{\"name\":\"" };
            let end = if is_submission(route) { "\"}}" } else { "\"}" };
            [start.as_bytes(), bytes, end.as_bytes()].concat()
        })
        .await;
    }
}

/// NUL bytes, before, inside and instead of the JSON.
#[tokio::test]
async fn nuls() {
    assert_refused("malformed-nul-only", |_| vec![0; 64]).await;
    assert_refused("malformed-nul-first", |route| format!("\0{}", valid(route)).into()).await;
    assert_refused("malformed-nul-inside", |route| valid(route).replace(':', ":\0").into()).await;
}

/// A byte order mark.
#[tokio::test]
async fn byte_order_mark() {
    assert_refused("malformed-bom", |route| format!("\u{feff}{}", valid(route)).into()).await;
}

/// Very deep nesting, as the whole body and in a field that is not the input.
#[tokio::test]
async fn deep_nesting() {
    assert_refused("malformed-deep", |_| vec![b'['; 200_000]).await;
    assert_refused("malformed-deep-object", |_| "{\"a\":".repeat(50_000).into()).await;
    assert_refused("malformed-deep-field", |route| {
        let field = if is_submission(route) { "policy" } else { "env" };
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        let rest = &valid(route)[1..];
        // Not every route has such a field.
        let has_env = ["/templates", "/endpoints"].iter().any(|kind| route.path.contains(kind));
        let field = if has_env || is_submission(route) { field } else { "name" };
        format!("{{\"{field}\":{deep},{rest}").into()
    })
    .await;
}

/// Bytes that are not a component, and a text that is not an image name.
#[tokio::test]
async fn no_component() {
    let endpoint = shared("malformed-component", json!({})).await;
    for body in [&b""[..], b"\0", b"\0asm", b"\0asm\x0d\0\x01\0garbage", b"{}"] {
        endpoint.host.upload("malformed:latest", body).await.refused(400);
    }
    for reference in ["no-tag", ":latest", "a:", "a:b:c", "A%20b:c"] {
        let answer = endpoint.host.upload(reference, b"\0asm".to_vec()).await;
        assert!(matches!(answer.status, 400 | 404), "{reference}: {answer:?}");
    }
}
