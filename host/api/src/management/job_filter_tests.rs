//! Conditions of a filter of jobs in queries and bodies, and answers that name a mistake in one.

use axum::response::IntoResponse as _;
use http_body_util::BodyExt as _;
use serde_json::json;

use super::*;

#[test]
fn each_condition_is_read() {
    let query = "status=FAILED&status=TIMED_OUT&status=FAILED&tag=env:prod&tag=team/run:a:b%20c\
                 &from=1970-01-01T00:00:01Z&to=1970-01-01T00:00:02Z&idPrefix=019&error=100%25_";
    let dates = of_query(Query("from=1970-01-02&to=9999-12-31")).unwrap();
    let days = [dates.from, dates.until].map(|at| at.unwrap().as_millis() / 86_400_000);
    assert_eq!(days, [1, 2_932_896]);
    let tag = |key, value| Tag::new(key, value).unwrap();
    let expected = JobFilter {
        statuses: vec![JobStatus::Failed, JobStatus::TimedOut],
        tags: vec![tag("env", "prod"), tag("team/run", "a:b c")],
        from: Some(Timestamp::from_millis(1_000)),
        until: Some(Timestamp::from_millis(2_000)),
        id_prefix: Some("019".to_owned()),
        id_part: None,
        error: Some("100%_".to_owned()),
    };
    assert_eq!(of_query(Query(query)).unwrap(), expected);
    assert_eq!(of_query(Query("")).unwrap(), JobFilter::default());
    assert_eq!(of_query(Query("idPart=9f4d")).unwrap().id_part.as_deref(), Some("9f4d"));
    let body = json!({
        "endpoints": ["e"], "statuses": ["FAILED", "TIMED_OUT", "FAILED"],
        "tags": { "env": "prod", "team/run": "a:b c" },
        "from": "1970-01-01T00:00:01Z", "to": "1970-01-01T00:00:02Z", "idPrefix": "019", "error": "100%_",
    });
    assert_eq!(of_body(serde_json::from_value(body).unwrap()).unwrap(), expected);
    let only = json!({ "endpoints": ["e"] });
    let only = of_body(serde_json::from_value(only).unwrap()).unwrap();
    assert_eq!(only, JobFilter::default());
}

async fn complaint(refused: ApiError) -> String {
    let said = refused.into_response().into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(said.to_vec()).unwrap()
}

#[tokio::test]
async fn mistakes_in_queries_are_named() {
    let many = (0..17).map(|n| format!("&tag=a{n}:b")).collect::<String>();
    let long = format!("error={}", "x".repeat(257));
    let long_id = format!("idPrefix={}", "x".repeat(129));
    let long_status = format!("status={}", "x".repeat(9_999));
    for (query, expected) in [
        ("status=DONE", "query `status` must be one of"),
        (&long_status, "query `status` must be one of"),
        ("tag=env", "query `tag` must be a key, a colon and a value"),
        ("tag=Env:a", "query `tag`: each key of `tags`"),
        ("tag=a:%00", "query `tag`: `tags.a` has a control character"),
        (&many, "query `tag` has more than 16 tags"),
        ("from=today", "query `from` must be a time"),
        ("to=1", "query `to` must be a time"),
        ("to=2026-02-30", "query `to` must be a time"),
        ("to=1969-12-31", "query `to` must be a time"),
        ("idPrefix=", "query `idPrefix` must have 1 to 128"),
        (&long_id, "query `idPrefix` must have 1 to 128"),
        ("idPart=", "query `idPart` must have 1 to 128"),
        ("error=", "query `error` must have 1 to 256 characters"),
        (&long, "query `error` must have 1 to 256 characters"),
    ] {
        let said = complaint(of_query(Query(query)).expect_err(query)).await;
        assert!(said.contains(expected) && said.len() < 500, "{query:.99}: {said:.999}");
    }
}

#[tokio::test]
async fn mistakes_in_bodies_are_named() {
    let tags: serde_json::Map<_, _> = (0..17).map(|n| (format!("a{n}"), json!("b"))).collect();
    for (body, expected) in [
        (json!({}), "`filter` must have at least one condition"),
        (json!({ "tags": {} }), "`filter` must have at least one condition"),
        (json!({ "tags": { "Env": "a" } }), "`filter.tags`: each key of `tags`"),
        (json!({ "tags": tags }), "`filter.tags` has more than 16 tags"),
        (json!({ "statuses": vec!["FAILED"; 7] }), "`filter.statuses` has 7 statuses; there are 6"),
        (json!({ "from": "today" }), "`filter.from` must be a time"),
        (json!({ "to": "1" }), "`filter.to` must be a time"),
        (json!({ "idPrefix": "" }), "`filter.idPrefix` must have 1 to 128"),
        (json!({ "error": "x".repeat(257) }), "`filter.error` must have 1 to 256 characters"),
    ] {
        let filter = serde_json::from_value(body.clone()).unwrap();
        let said = complaint(of_body(filter).expect_err("a mistake")).await;
        assert!(said.contains(expected) && said.len() < 500, "{body:.99}: {said:.999}");
    }
}
