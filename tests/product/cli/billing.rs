//! `gristmill billing`.

use gristmill_tests::{guests, shared_host};
use serde_json::json;

use crate::command::{on, run};

#[tokio::test]
async fn usage_is_shown_as_a_table_and_as_json() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "cli-billing", json!({})).await;
    for _ in 0..2 {
        host.client.finish(&endpoint, json!({ "op": "echo" })).await;
    }
    let told = run(on(&host), "billing --bucket year --endpoint cli-billing --json").succeeded();
    assert_eq!(told.json()[0]["jobs"], 2);
    let shown = run(on(&host), "billing --endpoint cli-billing --group template").succeeded();
    let lines: Vec<_> = shown.stdout.lines().collect();
    assert!(lines[0].starts_with("TIME") && lines[0].contains("TEMPLATE"), "{shown:?}");
    assert!(lines[1].contains("cli-billing"), "{shown:?}");
    for wrong in ["2026-13-01", "yesterday"] {
        let refused = run(on(&host), &format!("billing --from {wrong}"));
        let refused = refused.failed(1, &["`--from` must be", "rfc 3339", wrong]);
        assert!(!refused.stderr.contains("startTime"), "{refused:?}");
    }
    let swapped = "billing --from 2026-02-01 --to 2026-01-01";
    run(on(&host), swapped).failed(1, &["`--from` must be before `--to`"]);
}
