//! Calls that are malformed as HTTP: a 4xx, never a 5xx, and the host continues.

use futures::future::join_all;
use serde_json::json;

use crate::raw::{self, head};
use crate::routes::{NOTHING, Part, Routes};
use crate::support::{UNKNOWN_JOB, echo, shared};

/// Header sections larger than the host reads, in one field and in many.
#[tokio::test]
async fn huge_headers() {
    let endpoint = shared("http-headers", json!({})).await;
    let one = format!("x-large: {}\r\n", "x".repeat(200_000));
    let many = "x-many: y\r\n".repeat(20_000);
    for route in Routes::of(&endpoint.client).await.that_read(&endpoint.id) {
        for fields in [&one, &many] {
            let head = head(&endpoint.host, route.method.as_str(), &route.path);
            let answer = raw::send(&endpoint.host, format!("{head}{fields}\r\n")).await;
            answer.assert_4xx(&route.path);
        }
    }
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED");
}

/// Escapes in the path that are invalid, are not UTF-8, or stand for separators.
#[tokio::test]
async fn bad_percent_encoding() {
    let endpoint = shared("http-percent", json!({})).await;
    let routes = Routes::of(&endpoint.client).await;
    let of_jobs = routes.in_part(Part::Queue, &endpoint.id, "PLACE");
    for route in routes.of_both("PLACE", UNKNOWN_JOB).into_iter().chain(of_jobs) {
        let path = route.path.replace(NOTHING, "PLACE");
        if !path.contains("PLACE") {
            continue;
        }
        for escape in ["%", "%zz", "%2", "%ff", "%00", "%2f..%2f", "%c0%80"] {
            let path = path.replace("PLACE", escape);
            let body = route.body.as_ref().map(ToString::to_string).unwrap_or_default();
            let head = head(&endpoint.host, route.method.as_str(), &path);
            let bytes = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            raw::send(&endpoint.host, bytes).await.assert_4xx(&path);
        }
    }
}

/// Escapes in the query that are not UTF-8, also in a parameter that the route would ignore.
#[tokio::test]
async fn query_that_is_not_utf8() {
    let endpoint = shared("http-query", json!({})).await;
    for route in Routes::of(&endpoint.client).await.of_all(&endpoint.id, UNKNOWN_JOB) {
        let path = format!("{}?a=1&idPart=%ff", route.path);
        let request = endpoint.client.request(route.method.clone(), &path);
        let answer = endpoint.client.send(request).await;
        assert_eq!(answer.status, 400, "{route:?}: {answer:?}");
        assert!(answer.text.contains("query `idPart` must be"), "{route:?}: {answer:?}");
    }
}

/// A Content-Length that is invalid, duplicate, or too long.
#[tokio::test]
async fn odd_content_length() {
    let endpoint = shared("http-length", json!({})).await;
    let wrong = [
        "content-length: -1\r\n",
        "content-length: +5\r\n",
        "content-length: 0x10\r\n",
        "content-length: 1.5\r\n",
        "content-length: \r\n",
        "content-length: 5, 6\r\n",
        "content-length: 5\r\ncontent-length: 6\r\n",
        "content-length: 99999999999999999999999\r\n",
        "content-length: 18446744073709551615\r\n",
        "content-length: 9223372036854775807\r\n",
        "content-length: 5\r\ntransfer-encoding: gzip\r\n",
    ];
    for route in Routes::of(&endpoint.client).await.that_read(&endpoint.id) {
        for fields in wrong {
            let head = head(&endpoint.host, route.method.as_str(), &route.path);
            let answer = raw::send(&endpoint.host, format!("{head}{fields}\r\n")).await;
            answer.assert_4xx(&format!("{} with {fields}", route.path));
        }
    }
}

/// A chunked body with invalid frames.
#[tokio::test]
async fn chunked_garbage() {
    let endpoint = shared("http-chunked", json!({})).await;
    let bodies =
        ["zz\r\n{}\r\n0\r\n\r\n", "-1\r\n", "5\r\n{}{}{}{}\r\n", "ffffffffffffffffff\r\n{}"];
    for route in Routes::of(&endpoint.client).await.that_read(&endpoint.id) {
        for body in bodies {
            let head = head(&endpoint.host, route.method.as_str(), &route.path);
            let bytes = format!("{head}transfer-encoding: chunked\r\n\r\n{body}");
            let answer = raw::send(&endpoint.host, bytes).await;
            answer.refused(400, &format!("{} with {body}", route.path));
        }
    }
}

/// A body that is longer than announced is cut; a shorter one that stops is given up after half a
/// minute, with the reason.
#[tokio::test]
async fn body_that_stops() {
    let endpoint = shared("http-stops", json!({})).await;
    let routes = Routes::of(&endpoint.client).await.that_read(&endpoint.id);
    let calls = routes.into_iter().map(async |route| {
        let head = head(&endpoint.host, route.method.as_str(), &route.path);
        let bytes = format!("{head}content-length: 100\r\n\r\n{{\"input\":");
        let answer = raw::send(&endpoint.host, bytes).await;
        answer.refused(408, &route.path);
    });
    join_all(calls).await;
    let head = head(&endpoint.host, "POST", &endpoint.path("run"));
    let long = format!("{head}content-length: 12\r\n\r\n{{\"input\":{{}}}} and more");
    assert_eq!(raw::send(&endpoint.host, long).await.status, 200);
}

/// Bytes that are not HTTP.
#[tokio::test]
async fn no_http() {
    let endpoint = shared("http-none", json!({})).await;
    let wrong = ["GET\r\n\r\n", "\0\0\0\0\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET  \r\n\r\n"];
    for bytes in wrong {
        raw::send(&endpoint.host, bytes).await.assert_4xx(bytes);
    }
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED");
}
