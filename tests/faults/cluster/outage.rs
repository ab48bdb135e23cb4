//! The database ends and starts again while hosts work.

use std::time::{Duration, Instant};

use gristmill_tests::{PATIENCE, eventually, guests};
use serde_json::json;

use crate::hosts::{finished, first, further, sleep, submit};
use crate::postgres::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_refused_during_an_outage_and_work_continues_after_it() {
    let Some(mut server) = Server::start() else { return };
    let database = server.database();
    let one = first(&database);
    let two = further(&database, &one);
    one.deploy(&guests::playground(), "play", json!({ "workersMax": 2 })).await;
    let clients = [one.client(), two.client()];
    let mut jobs = Vec::new();
    for number in 0..30_u64 {
        let body = json!({ "input": sleep(300, number) });
        jobs.push(submit(&clients, "play", &number.to_string(), &body).await);
    }
    server.kill();
    // A submission that is sent at once is answered, too.
    let begun = Instant::now();
    let in_flight = clients[0].run("play", sleep(1, 99)).await;
    let waited = begun.elapsed();
    assert_eq!(in_flight.status, 503, "{in_flight:?}");
    assert!(waited < Duration::from_secs(30), "it waited {waited:?}");
    for client in &clients {
        eventually("refusals", async || {
            let answers = [
                client.run("play", json!({})).await,
                client.status("play", &jobs[0]).await,
                client.get("/v1/endpoints").await,
                client.get("/readyz").await,
            ];
            let refused = answers.iter().all(|answer| answer.status == 503);
            let later = answers[..3].iter().all(|answer| answer.header("retry-after").is_some());
            (refused && later).then_some(())
        })
        .await;
        assert_eq!(client.get("/livez").await.status, 200);
    }
    tokio::task::block_in_place(|| server.start_again());
    for (number, job) in jobs.iter().enumerate() {
        let document = finished(&clients, "play", job).await;
        assert_eq!(document["output"]["echo"], json!(number), "{document}");
    }
    // The active host was not replaced.
    assert_eq!(one.client().get("/readyz").await.status, 200);
    assert_eq!(two.client().get("/readyz").await.status, 503);
    assert_eq!(database.sql("SELECT count(*) FROM session"), "1");
    assert!(begun.elapsed() < PATIENCE);
    drop((one, two));
    drop(database);
}
