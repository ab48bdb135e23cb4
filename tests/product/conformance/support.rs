//! An endpoint for one test, with helpers.

use std::ops::Deref;

use gristmill_tests::{
    Answer, Client, Clocked, Shared, TestHost, clocked_host, guests, shared_host,
};
use reqwest::Method;
use serde_json::{Value, json};

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

pub(crate) const MIB: usize = 1 << 20;

/// A well-formed id of a job that does not exist.
pub(crate) const UNKNOWN_JOB: &str = "0192f3a0-0000-7000-8000-000000000000-0000";

/// An endpoint that runs the playground, called with the admin key.
#[derive(Debug)]
pub(crate) struct Endpoint<H> {
    pub(crate) host: H,
    pub(crate) client: Client,
    pub(crate) id: String,
}

/// An endpoint on the host that all tests share.
pub(crate) async fn shared(name: &str, settings: Value) -> Endpoint<Shared> {
    let host = shared_host();
    let id = host.deploy(&guests::playground(), name, settings).await;
    Endpoint { client: host.client.clone(), id, host }
}

/// An endpoint on a host whose clock only this test moves.
pub(crate) async fn clocked(name: &str, settings: Value) -> Endpoint<Clocked> {
    let host = clocked_host();
    let id = host.deploy(&guests::playground(), name, settings).await;
    Endpoint { client: host.client.clone(), id, host }
}

/// Settings of an endpoint whose jobs all wait.
pub(crate) fn paused() -> Value {
    json!({ "workersMax": 0 })
}

/// Settings of an endpoint that runs one job at a time.
pub(crate) fn one_worker() -> Value {
    json!({ "workersMax": 1 })
}

/// An input that the handler returns at once.
pub(crate) fn echo() -> Value {
    json!({ "op": "echo", "value": "grain" })
}

/// An input that computes until it is stopped.
pub(crate) fn computing() -> Value {
    json!({ "op": "spin" })
}

/// An input that waits until it is stopped.
pub(crate) fn forever() -> Value {
    json!({ "op": "sleep_forever" })
}

/// An input with which the handler fails.
pub(crate) fn failing() -> Value {
    json!({ "op": "fail", "message": "no flour" })
}

/// A job's id in a document.
pub(crate) fn id(document: &Value) -> String {
    document["id"].as_str().unwrap_or_else(|| panic!("no id: {document}")).to_owned()
}

impl<H: Deref<Target = TestHost>> Endpoint<H> {
    pub(crate) fn path(&self, rest: &str) -> String {
        self.client.path(&self.id, rest)
    }

    /// `GET /{endpoint}/rest`.
    pub(crate) async fn get(&self, rest: &str) -> Answer {
        self.client.get(&self.path(rest)).await
    }

    /// `POST /{endpoint}/rest` with a JSON body.
    pub(crate) async fn post(&self, rest: &str, body: &Value) -> Answer {
        self.client.post(&self.path(rest), body).await
    }

    /// `POST /{endpoint}/rest` without a body.
    pub(crate) async fn post_empty(&self, rest: &str) -> Answer {
        self.client.post_empty(&self.path(rest)).await
    }

    /// A call with a useless body and media type.
    pub(crate) async fn with_nonsense_body(&self, method: Method, rest: &str) -> Answer {
        let request = self.client.request(method, &self.path(rest));
        self.client.send(request.header("content-type", "text/xml").body("<no json/>")).await
    }

    /// Submits a job; returns its id.
    pub(crate) async fn submit(&self, input: Value) -> String {
        self.client.submit(&self.id, input).await
    }

    /// Submits a job with a policy; returns its id.
    pub(crate) async fn submit_with(&self, input: Value, policy: Value) -> String {
        self.client.submit_with(&self.id, input, policy).await
    }

    /// `/runsync`; `query` is empty or starts with `?`.
    pub(crate) async fn run_sync(&self, query: &str, input: Value) -> Answer {
        self.client.run_sync(&self.id, query, input).await
    }

    /// `/status`; `job` may carry a query.
    pub(crate) async fn status(&self, job: &str) -> Answer {
        self.client.status(&self.id, job).await
    }

    /// `/stream`; `job` may carry a query.
    pub(crate) async fn stream(&self, job: &str) -> Answer {
        self.client.stream(&self.id, job).await
    }

    pub(crate) async fn cancel(&self, job: &str) -> Answer {
        self.client.cancel(&self.id, job).await
    }

    pub(crate) async fn retry(&self, job: &str) -> Answer {
        self.client.retry(&self.id, job).await
    }

    pub(crate) async fn purge(&self) -> Answer {
        self.client.purge(&self.id).await
    }

    pub(crate) async fn health(&self) -> Value {
        self.client.health(&self.id).await
    }

    /// Waits until the job has this status; returns its document.
    pub(crate) async fn until(&self, job: &str, status: &str) -> Value {
        self.client.until(&self.id, job, status).await
    }

    /// Runs a job to its end; returns its document.
    pub(crate) async fn finish(&self, input: Value) -> Value {
        self.client.finish(&self.id, input).await
    }

    /// Submits a job and waits until it runs; returns its id.
    pub(crate) async fn running(&self, input: Value) -> String {
        let job = self.submit(input).await;
        self.until(&job, "IN_PROGRESS").await;
        job
    }

    /// Waits until this many workers run.
    pub(crate) async fn workers_running(&self, count: u64) {
        self.client.workers_running(&self.id, count).await;
    }

    /// Waits until a job that computes has reached an executionTimeout of 5 s, the minimum.
    pub(crate) async fn timed_out(&self) -> String {
        let job = self.submit_with(computing(), json!({ "executionTimeout": 5_000 })).await;
        self.until(&job, "TIMED_OUT").await;
        job
    }

    /// Changes the maximum of workers.
    pub(crate) async fn set_workers_max(&self, count: u64) {
        let path = format!("/v1/endpoints/{}", self.id);
        self.client.patch(&path, &json!({ "workersMax": count })).await.ok();
    }

    /// Asserts that no call finds the job any more.
    pub(crate) async fn assert_gone(&self, job: &str) {
        self.status(job).await.refused(404);
        self.stream(job).await.refused(404);
        self.cancel(job).await.refused(404);
        self.retry(job).await.refused(404);
    }
}
