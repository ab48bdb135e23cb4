//! The parts of the load that have no state between kills. Their pauses are random, so that the
//! kills meet other states in each round.

use super::random::Random;
use super::session::Session;
use super::submission::Submission;

/// Submits jobs of all kinds, about thirty times a second.
pub(crate) async fn submit(session: Session, mut random: Random, webhook: String) {
    while !session.is_over() {
        let submission = Submission::any(&mut random, session.ledger.number(), &webhook);
        if session.submit(submission).await.is_none() {
            return;
        }
        tokio::time::sleep(random.ms(5, 50)).await;
    }
}

/// Reads jobs, including ended ones, which do not change.
pub(crate) async fn read(session: Session, mut random: Random) {
    while !session.is_over() {
        if let Some(job) = session.ledger.pick(&mut random)
            && session.read(&job).await.is_none()
        {
            return;
        }
        tokio::time::sleep(random.ms(1, 5)).await;
    }
}

/// Completes the calls that the last kill interrupted, and retries failed jobs.
pub(crate) async fn settle_and_retry(session: Session, mut random: Random) {
    if session.settle().await.is_none() {
        return;
    }
    while !session.is_over() {
        if let Some(job) = session.ledger.pick_failed(&mut random) {
            session.ledger.retry_sent(&job);
            let path = session.path(&format!("retry/{job}"));
            let Some(answer) = session.post("retry", &path).await else {
                return session.ledger.retry_unanswered(job);
            };
            answer.ok();
            session.ledger.retried(&job);
        }
        tokio::time::sleep(random.ms(10, 60)).await;
    }
}
