//! The promise of schedules, checked from outside.

use serde_json::Value;

use crate::{Client, eventually};

/// Checks that each time of a schedule by `everyMs` was decided once, from its creation to the
/// newest decision, and that each job of it exists. The endpoint may have up to 1,000 jobs of it,
/// and none may have been deleted. Returns the schedule.
pub async fn each_time_is_decided_once(client: &Client, id: &str) -> Value {
    let path = format!("/v1/schedules/{id}");
    let number = |shown: &Value, name: &str| shown[name].as_u64().unwrap();
    let before = eventually(&format!("a time of schedule {id}"), async || {
        let shown = client.get(&path).await.ok();
        shown["ticks"][0].is_object().then_some(shown)
    })
    .await;
    let decided: u64 = ["jobs", "skipped", "missed"].iter().map(|it| number(&before, it)).sum();
    let ms = |text: &Value| {
        let at: jiff::Timestamp = text.as_str().unwrap().parse().unwrap();
        u64::try_from(at.as_millisecond()).unwrap()
    };
    let elapsed_ms = ms(&before["ticks"][0]["at"]) - ms(&before["createdAt"]);
    assert_eq!(decided * number(&before, "everyMs"), elapsed_ms, "wrong: {before}");
    let listed = client.get(&format!("/v1/jobs?tag=schedule:{id}&limit=1000")).await.ok();
    let jobs = listed["jobs"].as_array().unwrap().len() as u64;
    let after = client.get(&path).await.ok();
    let range = number(&before, "jobs").min(1_000)..=number(&after, "jobs").min(1_000);
    assert!(range.contains(&jobs), "wrong: {jobs} jobs of {before}, then of {after}");
    before
}
