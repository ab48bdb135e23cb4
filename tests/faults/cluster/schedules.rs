//! Schedules over changes of the active host.

use gristmill_tests::{TestHost, each_time_is_decided_once, eventually, guests};
use serde_json::json;

use crate::hosts::{first, further, until_active, until_known};
use crate::postgres::Database;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_time_becomes_one_job_whichever_host_is_active() {
    let Some(database) = Database::new() else { return };
    let mut hosts: [TestHost; 2] = {
        let one = first(&database);
        let two = further(&database, &one);
        [one, two]
    };
    hosts[0].deploy(&guests::echo(), "echo", json!({})).await;
    let schedule = json!({
        "id": "often", "endpointId": "echo", "everyMs": 1_000, "overlap": "queue",
        "catchUp": { "maxTicks": 1_000 },
    });
    hosts[0].client().post("/v1/schedules", &schedule).await.ok();
    for active in [0, 1, 0] {
        let client = hosts[active].client();
        until_known(&client, 1).await;
        let jobs = each_time_is_decided_once(&client, "often").await["jobs"].as_u64().unwrap();
        eventually("two further jobs", async || {
            let shown = client.get("/v1/schedules/often").await.ok();
            (shown["jobs"].as_u64().unwrap() >= jobs + 2).then_some(())
        })
        .await;
        hosts[active].kill9();
        until_active(&hosts[1 - active]).await;
        hosts[active].start_again();
    }
    let shown = each_time_is_decided_once(&hosts[1].client(), "often").await;
    assert_eq!((&shown["skipped"], &shown["missed"]), (&0.into(), &0.into()), "{shown}");
}
