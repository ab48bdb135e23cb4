//! The queue API: submits and queries jobs.

use std::time::Duration;

use gristmill_core::id::EndpointId;
use gristmill_core::job::JobStatus;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{Answer, CALL_TIME_MAX, Client, ClientError, EventStream};

/// The path prefix of the queue API.
const MOUNT: &str = "v2";

/// A job to submit.
#[derive(Debug, Serialize)]
pub(crate) struct Submission<'a> {
    /// The handler's input, unchanged.
    pub(crate) input: &'a RawValue,
    /// The URL to call when the job ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<&'a str>,
    /// Timeout, ttl and priority.
    pub(crate) policy: SubmissionPolicy,
}

/// The policy of a job to submit; a missing field takes its default.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubmissionPolicy {
    /// Milliseconds that the handler may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) execution_timeout: Option<u64>,
    /// Lifetime of the job, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<u64>,
    /// Whether it runs only on existing workers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) low_priority: bool,
}

/// The status document of a job.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobDocument<'a> {
    /// The job's id.
    pub(crate) id: String,
    /// Its status.
    #[serde(deserialize_with = "status")]
    pub(crate) status: JobStatus,
    /// Milliseconds that it waited.
    #[serde(default)]
    pub(crate) delay_time: u64,
    /// Milliseconds that it ran.
    #[serde(default)]
    pub(crate) execution_time: u64,
    /// The worker that runs or ran it.
    pub(crate) worker_id: Option<String>,
    /// How often it was queued again.
    #[serde(default)]
    pub(crate) retries: u32,
    /// The result, or the newest progress value.
    #[serde(borrow)]
    pub(crate) output: Option<&'a RawValue>,
    /// Why it failed.
    pub(crate) error: Option<String>,
    /// Why it waits.
    pub(crate) reason: Option<String>,
}

/// The health report of an endpoint.
#[derive(Debug, Deserialize)]
pub(crate) struct HealthReport {
    /// Jobs by state.
    pub(crate) jobs: JobsReport,
    /// Workers by state.
    pub(crate) workers: WorkersReport,
}

/// Number of jobs now, or since the endpoint was created.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobsReport {
    /// Completed ever.
    pub(crate) completed: u64,
    /// Failed or timed out ever.
    pub(crate) failed: u64,
    /// Running now.
    pub(crate) in_progress: u64,
    /// Waiting now.
    pub(crate) in_queue: u64,
    /// Queued again ever.
    pub(crate) retried: u64,
}

/// Number of workers.
#[derive(Debug, Deserialize)]
pub(crate) struct WorkersReport {
    /// Workers that wait for a job.
    pub(crate) idle: u64,
    /// Workers that run a job.
    pub(crate) running: u64,
    /// Workers that load the component.
    #[serde(default)]
    pub(crate) initializing: u64,
    /// Workers that wait for a sandbox.
    #[serde(default)]
    pub(crate) throttled: u64,
    /// Workers that cannot run the component.
    #[serde(default)]
    pub(crate) unhealthy: u64,
}

/// What happened to a job.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeline {
    /// The events, oldest first.
    pub(crate) events: Vec<TimelineEvent>,
    /// The oldest attempts that are not among them.
    pub(crate) attempts_omitted: u32,
}

/// One event of a job. The fields depend on its kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimelineEvent {
    /// When it happened.
    pub(crate) at: String,
    /// Its kind.
    pub(crate) event: String,
    /// Why the job was queued.
    pub(crate) cause: Option<String>,
    /// The number of the attempt.
    pub(crate) attempt: Option<u32>,
    /// The worker of the attempt.
    pub(crate) worker_id: Option<String>,
    /// The job's final status.
    pub(crate) status: Option<String>,
    /// The status code of a webhook's receiver.
    pub(crate) http_status: Option<u16>,
    /// Why the job failed, or its webhook was given up.
    pub(crate) error: Option<String>,
}

/// A page of an endpoint's jobs.
#[derive(Debug, Deserialize)]
pub(crate) struct RequestList {
    /// The jobs, newest first.
    pub(crate) requests: Vec<RequestSummary>,
    /// The position of the next page.
    pub(crate) cursor: Option<String>,
}

/// A job of such a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestSummary {
    /// The job's id.
    pub(crate) id: String,
    /// Its status.
    #[serde(deserialize_with = "status")]
    pub(crate) status: JobStatus,
    /// When it was submitted.
    pub(crate) created_at: String,
    /// Milliseconds that it waited.
    pub(crate) delay_time: u64,
    /// Milliseconds that it ran.
    pub(crate) execution_time: u64,
    /// The worker that runs or ran it.
    pub(crate) worker_id: Option<String>,
}

/// Reads one of the six states.
pub(crate) fn status<'de, D: Deserializer<'de>>(from: D) -> Result<JobStatus, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(from)?;
    text.parse()
        .map_err(|error| serde::de::Error::custom(format_args!("job status `{text}` {error}")))
}

impl Client {
    /// The URL of an operation of an endpoint.
    pub(crate) fn queue_url(&self, endpoint: &EndpointId, operation: &[&str]) -> url::Url {
        self.url(&[&[MOUNT, endpoint.as_str()], operation].concat())
    }

    /// Submits a job; returns its id once it is on stable storage.
    pub(crate) async fn submit(
        &self,
        endpoint: &EndpointId,
        job: &Submission<'_>,
    ) -> Result<Answer, ClientError> {
        let body = serde_json::to_vec(job)
            .map_err(|error| ClientError::Garbled(format!("the job cannot be sent: {error}")))?;
        let request = self
            .request(Method::POST, self.queue_url(endpoint, &["run"]))
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        self.send(request).await
    }

    /// The job's status document.
    pub(crate) async fn status(
        &self,
        endpoint: &EndpointId,
        job: &str,
    ) -> Result<Answer, ClientError> {
        self.get(&[MOUNT, endpoint.as_str(), "status", job]).await
    }

    /// The job's status document once it has ended, or after `wait`.
    pub(crate) async fn wait(
        &self,
        endpoint: &EndpointId,
        job: &str,
        wait: Duration,
    ) -> Result<Answer, ClientError> {
        let mut url = self.queue_url(endpoint, &["status-sync", job]);
        url.query_pairs_mut().append_pair("wait", &wait.as_millis().to_string());
        self.send(self.request(Method::GET, url).timeout(wait + CALL_TIME_MAX)).await
    }

    /// Follows the job's stream: after the event with the id `after`, or from chunk `from` on, or
    /// from the first chunk that no call has delivered yet.
    pub(crate) async fn stream(
        &self,
        endpoint: &EndpointId,
        job: &str,
        from: Option<u64>,
        after: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        let mut url = self.queue_url(endpoint, &["stream", job]);
        if let Some(from) = from {
            url.query_pairs_mut().append_pair("from", &from.to_string());
        }
        EventStream::open(self, self.request(Method::GET, url), after).await
    }

    /// What happened to the job.
    pub(crate) async fn timeline(
        &self,
        endpoint: &EndpointId,
        job: &str,
    ) -> Result<Answer, ClientError> {
        self.get(&[MOUNT, endpoint.as_str(), "timeline", job]).await
    }

    /// Cancels the job.
    pub(crate) async fn cancel(
        &self,
        endpoint: &EndpointId,
        job: &str,
    ) -> Result<Answer, ClientError> {
        self.post(&[MOUNT, endpoint.as_str(), "cancel", job]).await
    }

    /// Queues a job that failed again.
    pub(crate) async fn retry(
        &self,
        endpoint: &EndpointId,
        job: &str,
    ) -> Result<Answer, ClientError> {
        self.post(&[MOUNT, endpoint.as_str(), "retry", job]).await
    }

    /// Removes all waiting jobs.
    pub(crate) async fn purge(&self, endpoint: &EndpointId) -> Result<Answer, ClientError> {
        self.post(&[MOUNT, endpoint.as_str(), "purge-queue"]).await
    }

    /// A page of the endpoint's jobs: those with `status`, `limit` of them, after `cursor`.
    pub(crate) async fn requests(
        &self,
        endpoint: &EndpointId,
        status: Option<JobStatus>,
        limit: Option<u64>,
        cursor: Option<&str>,
    ) -> Result<Answer, ClientError> {
        let mut url = self.queue_url(endpoint, &["requests"]);
        let parameters = [
            ("status", status.map(|status| status.as_str().to_owned())),
            ("limit", limit.map(|limit| limit.to_string())),
            ("cursor", cursor.map(str::to_owned)),
        ];
        for (name, value) in parameters {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, &value);
            }
        }
        self.send(self.request(Method::GET, url)).await
    }

    /// The endpoint's health report.
    pub(crate) async fn health(&self, endpoint: &EndpointId) -> Result<Answer, ClientError> {
        self.get(&[MOUNT, endpoint.as_str(), "health"]).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_has_only_the_given_fields() {
        let input = serde_json::from_str(r#"{"n": 9007199254740993}"#).unwrap();
        let plain = Submission { input, webhook: None, policy: SubmissionPolicy::default() };
        assert_eq!(
            serde_json::to_string(&plain).unwrap(),
            r#"{"input":{"n": 9007199254740993},"policy":{}}"#
        );
        let policy = SubmissionPolicy {
            execution_timeout: Some(5_000),
            ttl: Some(60_000),
            low_priority: true,
        };
        let full = Submission { input, webhook: Some("http://h/x"), policy };
        let expected = r#"{"input":{"n": 9007199254740993},"webhook":"http://h/x","policy":{"executionTimeout":5000,"ttl":60000,"lowPriority":true}}"#;
        assert_eq!(serde_json::to_string(&full).unwrap(), expected);
    }

    #[test]
    fn a_status_document_is_read_and_its_output_kept_as_text() {
        let text = r#"{"id":"a-1","status":"COMPLETED","delayTime":3,"executionTime":7,"output":{"n": 9007199254740993}}"#;
        let document: JobDocument<'_> = serde_json::from_str(text).unwrap();
        assert_eq!((document.status, document.execution_time), (JobStatus::Completed, 7));
        assert_eq!(document.output.unwrap().get(), r#"{"n": 9007199254740993}"#);
        assert!(serde_json::from_str::<JobDocument<'_>>(r#"{"id":"a","status":"DONE"}"#).is_err());
    }
}
