//! An endpoint without workers whose queue is purged: jobs that an acknowledged purge removed stay
//! deleted, and later jobs stay.

use serde_json::{Value, json};

use super::random::Random;
use super::session::Session;

/// The endpoint.
pub(crate) const QUEUE: &str = "purged";

#[derive(Debug, Default)]
pub(crate) struct Purger {
    /// Acknowledged, and not purged.
    waiting: Vec<String>,
    /// Jobs that existed when a purge without an answer was sent: they may or may not be deleted.
    in_doubt: Vec<String>,
    /// Submissions without an answer: each may have become a job.
    unanswered: usize,
    /// The jobs that the last purges removed.
    purged: Vec<String>,
}

impl Purger {
    pub(crate) async fn run(mut self, session: Session, mut random: Random) -> Self {
        if self.check(&session).await.is_some() {
            while !session.is_over() && self.step(&session, &mut random).await.is_some() {}
        }
        self
    }

    /// Some submissions and a purge.
    async fn step(&mut self, session: &Session, random: &mut Random) -> Option<()> {
        for _ in 0..random.below(8) {
            let text = "chaff ".repeat(usize::try_from(random.below(8) * 1_500).unwrap());
            let body = json!({ "input": { "op": "echo", "value": text } });
            let path = session.client.path(QUEUE, "run");
            let request = session.client.request(reqwest::Method::POST, &path).json(&body);
            let Some(answer) = session.call("run", request).await else {
                self.unanswered += 1;
                return None;
            };
            self.waiting.push(answer.ok()["id"].as_str().unwrap().to_owned());
            // Other states at each kill.
            tokio::time::sleep(random.ms(1, 20)).await;
        }
        let Some(answer) =
            session.post("purge-queue", &session.client.path(QUEUE, "purge-queue")).await
        else {
            self.in_doubt.append(&mut self.waiting);
            return None;
        };
        let removed = answer.ok()["removed"].as_u64().unwrap();
        assert!(self.may_wait(removed), "lost, or purged twice: {removed} removed of {self:?}");
        self.purged = std::mem::take(&mut self.waiting);
        self.purged.append(&mut self.in_doubt);
        self.unanswered = 0;
        self.check(session).await
    }

    /// Whether this many jobs may wait.
    fn may_wait(&self, count: u64) -> bool {
        let most = self.waiting.len() + self.in_doubt.len() + self.unanswered;
        (self.waiting.len()..=most).contains(&usize::try_from(count).unwrap())
    }

    /// Checks every job.
    pub(crate) async fn check(&self, session: &Session) -> Option<()> {
        let status = async |job: &str| {
            let path = session.client.path(QUEUE, &format!("status/{job}"));
            Some(session.get("status", &path).await?.status)
        };
        for job in &self.waiting {
            assert_eq!(status(job).await?, 200, "lost: {job}, after a purge or without one");
        }
        for job in &self.purged {
            assert_eq!(status(job).await?, 404, "lost: a purge: {job} is back");
        }
        Some(())
    }

    /// The same, with the endpoint's counters.
    pub(crate) async fn audit(&self, session: &Session) {
        self.check(session).await.unwrap();
        let health = session.client.health(QUEUE).await;
        let count = |field: &str| health["jobs"][field].as_u64().unwrap();
        assert!(self.may_wait(count("inQueue")), "wrong: {health}, known: {self:?}");
        let others = [count("inProgress"), count("completed"), count("failed"), count("retried")];
        assert_eq!(others, [0; 4], "wrong: {health}");
    }
}

/// Its settings.
pub(crate) fn settings() -> Value {
    json!({ "workersMax": 0 })
}
