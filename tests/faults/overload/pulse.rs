//! Calls that must be answered under any load: health, small submissions and cancels. They run
//! during the whole scenario.

use std::time::{Duration, Instant};

use gristmill_tests::{Client, PATIENCE, TestHost, guests, percentile};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::scale::Scale;

/// The longest time for an answer at full size: half a minute, since the load and the tests share
/// few cores.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// Pause between two rounds: four rounds in a second are below the limit of cancels.
const PAUSE: Duration = Duration::from_millis(250);

/// Calls until it is stopped.
pub(crate) struct Pulse {
    stop: CancellationToken,
    asking: JoinHandle<Latencies>,
}

#[derive(Default)]
struct Latencies {
    health: Vec<Duration>,
    submit: Vec<Duration>,
    cancel: Vec<Duration>,
    work: Vec<Duration>,
}

impl Pulse {
    /// Starts with separate endpoints, so that the limits of the scenario do not apply, beside the
    /// health of `endpoint`.
    pub(crate) async fn start(host: &TestHost, endpoint: &str) -> Self {
        let waiting = host.deploy(&guests::echo(), "waiting", json!({ "workersMax": 0 })).await;
        let working = host.deploy(&guests::echo(), "working", json!({ "workersMax": 1 })).await;
        let (stop, client, endpoint) =
            (CancellationToken::new(), host.client(), endpoint.to_owned());
        client.run_sync(&working, "", json!({})).await.ok();
        let stopped = stop.clone();
        let asking = tokio::spawn(async move {
            let mut latencies = Latencies::default();
            while !stopped.is_cancelled() {
                latencies.ask(&client, &endpoint, &waiting, &working).await;
                sleep(PAUSE).await;
            }
            latencies
        });
        Self { stop, asking }
    }

    /// Prints the latencies; a missing answer has failed the test by then.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        let Latencies { mut health, mut submit, mut cancel, mut work } =
            self.asking.await.expect("everything is answered throughout");
        assert!(!health.is_empty());
        for (what, latencies) in [
            ("health", &mut health),
            ("submit", &mut submit),
            ("cancel", &mut cancel),
            ("runsync", &mut work),
        ] {
            let (p50, p99) = (percentile(latencies, 50), percentile(latencies, 99));
            println!("{what}: {} answers, p50 {p50:.1?}, p99 {p99:.1?}", latencies.len());
        }
    }
}

impl Latencies {
    async fn ask(&mut self, client: &Client, endpoint: &str, waiting: &str, working: &str) {
        timed(&mut self.health, "health", client.health(endpoint)).await;
        let job = timed(&mut self.submit, "submit", client.submit(waiting, json!({}))).await;
        let cancel = async { client.cancel(waiting, &job).await.ok() };
        let cancelled = timed(&mut self.cancel, "cancel", cancel).await;
        assert_eq!(cancelled["status"], "CANCELLED");
        let work = async { client.run_sync(working, "", json!({ "grain": 1 })).await.ok() };
        let document = timed(&mut self.work, "runsync", work).await;
        assert_eq!(document["output"], json!({ "grain": 1 }), "{document}");
    }
}

async fn timed<T>(into: &mut Vec<Duration>, what: &str, call: impl Future<Output = T>) -> T {
    let asked = Instant::now();
    let longest = Scale::of_this_run().choose(PATIENCE, ANSWER_WAIT);
    let answer = timeout(longest, call).await;
    into.push(asked.elapsed());
    answer.unwrap_or_else(|_| panic!("{what} was not answered within {longest:?}"))
}
