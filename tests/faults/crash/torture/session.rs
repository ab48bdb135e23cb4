//! The calls of the load, each recorded in the ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_tests::{Answer, Client};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::ledger::Ledger;
use super::submission::{Kind, MILL, Submission};

/// One process of the host, for its clients. Functions that return an `Option` return `None` once
/// that process gives no more answers.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) ledger: Arc<Ledger>,
    /// Set just before the host is killed or asked to end.
    is_kill_announced: Arc<AtomicBool>,
    /// Set once it is dead.
    is_over: Arc<AtomicBool>,
}

impl Session {
    pub(crate) fn new(client: Client, ledger: Arc<Ledger>) -> Self {
        Self { client, ledger, is_kill_announced: Arc::default(), is_over: Arc::default() }
    }

    /// From now on a call may get no answer.
    pub(crate) fn announce_kill(&self) {
        self.is_kill_announced.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_kill_announced(&self) -> bool {
        self.is_kill_announced.load(Ordering::SeqCst)
    }

    /// The process has ended.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Checks that the kill can have caused the error of a call.
    pub(crate) fn check_lost(&self, error: &reqwest::Error) {
        assert!(self.is_kill_announced(), "wrong: the host broke a call off by itself: {error:?}");
    }

    pub(crate) async fn call(&self, what: &'static str, request: RequestBuilder) -> Option<Answer> {
        match self.client.try_send(request).await {
            Ok(answer) if answer.status == 503 => {
                assert!(self.is_kill_announced(), "wrong: refused without a reason: {answer:?}");
                assert!(answer.header("retry-after").is_some(), "wrong: {answer:?}");
                self.ledger.count("503 while the host drains");
                None
            }
            Ok(answer) => {
                self.ledger.count(what);
                Some(answer)
            }
            Err(error) => {
                self.check_lost(&error);
                None
            }
        }
    }

    pub(crate) async fn post(&self, what: &'static str, path: &str) -> Option<Answer> {
        self.call(what, self.client.request(Method::POST, path)).await
    }

    pub(crate) async fn get(&self, what: &'static str, path: &str) -> Option<Answer> {
        self.call(what, self.client.request(Method::GET, path)).await
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        self.client.path(MILL, rest)
    }

    /// Submits a job, and cancels it if it would not end.
    pub(crate) async fn submit(&self, submission: Submission) -> Option<String> {
        let request = submission.request(&self.client);
        let Some(answer) = self.call(submission.operation(), request).await else {
            self.ledger.unanswered(submission);
            return None;
        };
        let document = answer.ok();
        let job = document["id"].as_str().unwrap();
        let (is_sync, kind) = (submission.is_sync, submission.kind);
        self.ledger.acknowledged(job, submission);
        if is_sync {
            self.ledger.saw(&self.ledger.before(job), &answer.text);
        }
        if kind == Kind::Cancelled {
            self.cancel(job).await?;
        }
        Some(job.to_owned())
    }

    pub(crate) async fn cancel(&self, job: &str) -> Option<()> {
        let answer = self.post("cancel", &self.path(&format!("cancel/{job}"))).await?;
        self.ledger.cancelled(job, &answer.ok());
        Some(())
    }

    /// Reads a job that was acknowledged.
    pub(crate) async fn read(&self, job: &str) -> Option<Value> {
        let before = self.ledger.before(job);
        let answer = self.get("status", &self.path(&format!("status/{job}"))).await?;
        assert_ne!(answer.status, 404, "lost: {job}, known: {:?}", self.ledger.entry(job));
        let document = answer.ok();
        self.ledger.saw(&before, &answer.text);
        Some(document)
    }

    /// Completes the calls that the last kill interrupted.
    pub(crate) async fn settle(&self) -> Option<()> {
        while let Some(submission) = self.ledger.take_unanswered() {
            self.submit(submission).await?;
        }
        for job in self.ledger.to_cancel() {
            self.cancel(&job).await?;
        }
        for job in self.ledger.retries_in_doubt() {
            let document = self.read(&job).await?;
            self.ledger.retry_settled(&job, &document);
        }
        Some(())
    }
}
