//! The calls of the load, through any host. A call without a clear answer is sent again through
//! another host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gristmill_tests::{Answer, Client, PATIENCE};
use rand::seq::IndexedRandom as _;
use reqwest::{Method, RequestBuilder};
use tokio::task::JoinSet;

use super::ledger::{Ledger, is_final};
use super::members::Member;
use super::submission::{ENDPOINT, Submission};

/// A paused host does not answer, and a link may be silent.
pub(crate) const CALL_TIME_MAX: Duration = Duration::from_secs(5);

/// An answer that is no "come back later".
#[derive(Debug)]
pub(crate) struct Reply {
    /// When the answered call was sent.
    pub(crate) began: Instant,
    pub(crate) answer: Answer,
    /// The jobs that unclear answers to the same call have named.
    earlier_jobs: Vec<String>,
    /// Whether it is the answer to the first try.
    is_first: bool,
}

/// The clients of all hosts, and their knowledge.
pub(crate) struct Clients {
    pub(crate) members: Vec<Member>,
    pub(crate) ledger: Ledger,
    /// The URL of the receiver of webhooks.
    pub(crate) webhook: String,
    pub(crate) seed: u64,
    pub(crate) is_over: AtomicBool,
    pub(crate) numbers: AtomicU64,
}

impl Clients {
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn random_client(&self) -> Client {
        self.members.choose(&mut rand::rng()).unwrap().client()
    }

    /// Calls one host after the other until one of them answers. Each try is passed to
    /// `about_to_send` first.
    async fn try_all(
        &self,
        what: &'static str,
        build: impl Fn(&Client) -> RequestBuilder,
        about_to_send: impl Fn(),
    ) -> Reply {
        let deadline = Instant::now() + PATIENCE;
        let (mut earlier_jobs, mut is_first) = (Vec::new(), true);
        loop {
            let client = self.random_client();
            about_to_send();
            let began = Instant::now();
            match client.try_send(build(&client).timeout(CALL_TIME_MAX)).await {
                Ok(answer) if matches!(answer.status, 429 | 503) => {
                    assert!(answer.header("retry-after").is_some(), "wrong: {answer:?}");
                    earlier_jobs.extend(answer.header("x-job-id").map(str::to_owned));
                }
                Ok(answer) => {
                    self.ledger.count(what);
                    return Reply { began, answer, earlier_jobs, is_first };
                }
                Err(_) => {}
            }
            is_first = false;
            assert!(Instant::now() < deadline, "stuck: no host has answered {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn call(
        &self,
        what: &'static str,
        build: impl Fn(&Client) -> RequestBuilder,
    ) -> Reply {
        self.try_all(what, build, || ()).await
    }

    pub(crate) async fn get(&self, what: &'static str, rest: &str) -> Reply {
        self.call(what, |client| client.request(Method::GET, &client.path(ENDPOINT, rest))).await
    }

    /// Reads a job that was acknowledged; true when it has ended.
    pub(crate) async fn read(&self, job: &str) -> bool {
        let Reply { began, answer, .. } = self.get("status", &format!("status/{job}")).await;
        let known = || self.ledger.entry(job);
        assert_eq!(answer.status, 200, "lost: {job}: {answer:?}: {:?}", known());
        self.ledger.saw(job, began, &answer.text)
    }

    /// Submits a job, again if requested, and returns its id.
    async fn submit(&self, submission: &Submission) -> String {
        let job = self.submit_once(submission, false).await;
        if submission.is_repeated {
            let repeated = self.submit_once(submission, true).await;
            assert_eq!(repeated, job, "double: {submission:?}");
        }
        job
    }

    async fn submit_once(&self, submission: &Submission, is_known: bool) -> String {
        let build = |client: &Client| submission.request(client);
        let reply = self.call(submission.operation(), build).await;
        let document = reply.answer.ok();
        let job = document["id"].as_str().unwrap();
        for earlier in &reply.earlier_jobs {
            assert_eq!(earlier, job, "double: an unclear answer named another job: {submission:?}");
        }
        let is_replayed = reply.answer.header("idempotent-replayed") == Some("true");
        let is_right = is_replayed == is_known || (is_replayed && !reply.is_first);
        assert!(is_right, "double: {:?} to {submission:?}", reply.answer);
        self.ledger.acknowledged(job, submission);
        if submission.is_sync {
            assert_eq!(reply.answer.header("x-job-id"), Some(job), "wrong: {:?}", reply.answer);
            self.ledger.saw(job, reply.began, &reply.answer.text);
        }
        job.to_owned()
    }

    /// Cancels a job, and reads it at once: the cancel is final from its answer on.
    async fn cancel(&self, job: &str) {
        self.ledger.cancel_sent(job);
        let path = format!("cancel/{job}");
        let build = |client: &Client| client.request(Method::POST, &client.path(ENDPOINT, &path));
        let document = self.call("cancel", build).await.answer.ok();
        assert!(is_final(&document), "wrong: the answer of a cancel: {document}");
        self.ledger.cancelled(job, document["status"].as_str().unwrap());
        self.read(job).await;
    }

    /// Retries a job that has failed, and was queued again this often before.
    async fn retry(&self, job: &str, retries: u64) {
        let path = format!("retry/{job}");
        let build = |client: &Client| client.request(Method::POST, &client.path(ENDPOINT, &path));
        let answer = self.try_all("retry", build, || self.ledger.retry_sent(job)).await.answer;
        if answer.status == 400 {
            self.ledger.retry_refused(job, &answer.text);
        } else {
            answer.ok();
            self.ledger.retried(job, retries);
        }
        self.read(job).await;
    }

    /// Submits one numbered job after the other.
    pub(crate) async fn run_submitter(self: Arc<Self>) {
        let mut cancels = JoinSet::new();
        while !self.is_over() {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let submission = Submission::new(self.seed, number, &self.webhook);
            let job = self.submit(&submission).await;
            if let Some(pause) = submission.cancel_after {
                // Other jobs are submitted meanwhile.
                let it = self.clone();
                cancels.spawn(async move {
                    tokio::time::sleep(pause).await;
                    it.cancel(&job).await;
                });
            }
            while let Some(cancel) = cancels.try_join_next() {
                cancel.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        cancels.join_all().await;
    }

    /// Reads recent jobs.
    pub(crate) async fn run_reader(self: Arc<Self>) {
        while !self.is_over() {
            if let Some(job) = self.ledger.pick() {
                self.read(&job).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Retries jobs that have failed.
    pub(crate) async fn run_retrier(self: Arc<Self>) {
        while !self.is_over() {
            if let Some((job, retries)) = self.ledger.take_failed() {
                self.retry(&job, retries).await;
                self.ledger.release(&job);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Starts a host that has ended.
    pub(crate) async fn run_supervisor(self: Arc<Self>, index: usize) {
        while !self.is_over() {
            let it = self.clone();
            tokio::task::spawn_blocking(move || it.members[index].supervise()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
