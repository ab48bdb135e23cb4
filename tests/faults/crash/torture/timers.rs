//! Jobs that the host starts by itself: each time of a schedule becomes exactly one of a job, a
//! skip or a miss, and a failing job has exactly the attempts that its rule permits. Of the failing
//! jobs, which have one key, one runs at a time.

use gristmill_tests::{TestHost, each_time_is_decided_once, guests};
use serde_json::{Value, json};

use super::random::Random;
use super::session::Session;

/// The endpoint of these jobs.
const CLOCKWORK: &str = "clockwork";

const SCHEDULES: [&str; 3] = ["skip", "queue", "cancel"];

const ATTEMPTS: u64 = 3;

/// The failing jobs that were acknowledged and are not checked yet.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    failing: Vec<String>,
    checked: u64,
    /// The begins and ends of all their attempts.
    attempts: Vec<[String; 2]>,
}

impl Timers {
    pub(crate) async fn start(host: &TestHost) -> Self {
        let client = host.client();
        let settings = json!({ "workersMax": 4, "keys": { "concurrency": 1 } });
        host.deploy(&guests::playground(), CLOCKWORK, settings).await;
        for overlap in SCHEDULES {
            let schedule = json!({
                "id": overlap, "endpointId": CLOCKWORK, "everyMs": 1_000, "overlap": overlap,
                "catchUp": { "maxTicks": 1_000, "windowMs": 604_800_000 },
                "input": { "op": "sleep", "ms": 300 },
            });
            client.post("/v1/schedules", &schedule).await.ok();
        }
        Self::default()
    }

    /// Submits failing jobs until the host is killed.
    pub(crate) async fn run(mut self, session: Session, mut random: Random) -> Self {
        while !session.is_over() {
            let retry = json!({
                "maxAttempts": ATTEMPTS, "initialDelayMs": random.below(400), "factor": 1,
            });
            let policy = json!({ "retry": retry, "ttl": 600_000, "key": "failing" });
            let body = json!({ "input": { "op": "fail" }, "policy": policy });
            let request = session
                .client
                .request(reqwest::Method::POST, &session.client.path(CLOCKWORK, "run"));
            let Some(answer) = session.call("run", request.json(&body)).await else { break };
            self.failing.push(answer.ok()["id"].as_str().unwrap().to_owned());
            tokio::time::sleep(random.ms(20, 120)).await;
        }
        self
    }

    pub(crate) async fn audit(&mut self, session: &Session) {
        for id in SCHEDULES {
            let shown = each_time_is_decided_once(&session.client, id).await;
            assert_eq!(shown["missed"], 0, "wrong: {shown}");
        }
        for job in std::mem::take(&mut self.failing) {
            let done = session.client.finished(CLOCKWORK, &job).await;
            assert_eq!(done["status"], "FAILED", "wrong: {done}");
            let path = session.client.path(CLOCKWORK, &format!("timeline/{job}"));
            let timeline = session.client.get(&path).await.ok();
            self.attempts.extend(attempts(&timeline));
            if done["exhausted"] == true {
                assert_eq!(timeline["usage"]["attempts"], ATTEMPTS, "wrong: {timeline}");
            } else {
                let error = done["error"].as_str().unwrap();
                assert!(error.contains("crash") || error.contains("host"), "wrong: {done}");
            }
            self.checked += 1;
        }
        self.attempts.sort();
        for pair in self.attempts.windows(2) {
            assert!(pair[0][1] <= pair[1][0], "two jobs of one key ran at one time: {pair:?}");
        }
    }

    pub(crate) fn checked(&self) -> u64 {
        self.checked
    }
}

/// The begins and ends of the attempts in a timeline.
fn attempts(timeline: &Value) -> Vec<[String; 2]> {
    let at = |event: &Value| event["at"].as_str().unwrap().to_owned();
    let events = timeline["events"].as_array().unwrap();
    let began = events.windows(2).filter(|pair| pair[0]["event"] == "started");
    began.map(|pair| [at(&pair[0]), at(&pair[1])]).collect()
}
