//! The queue API: submits, reads and controls jobs.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder};
use url::Url;

use crate::client::{CALL_TIME_MAX, with_query};
use crate::wire::JobStatus;
use crate::wire::id::EndpointId;
use crate::wire::queue::{
    Accepted, HealthReport, Purged, RequestList, StatusDocument, Submission, Timeline,
};
use crate::{Answer, Client, ClientError, EventStream, JobStream};

/// The path prefix of the queue API.
const MOUNT: &str = "v2";

/// Selects the jobs of a list.
#[derive(Debug, Clone, Default)]
pub struct RequestFilter {
    /// Only jobs with this status.
    pub status: Option<JobStatus>,
    /// Most jobs of the page; by default 100
    /// ([`LIST_JOBS`](crate::wire::bounds::LIST_JOBS)).
    pub limit: Option<u64>,
    /// Continues after an earlier page: its `cursor`.
    pub cursor: Option<String>,
}

/// # The queue API
///
/// Every call fails when the host refuses it, or cannot be reached.
impl Client {
    /// The URL of an operation of an endpoint, such as `["status", JOB]`.
    pub fn queue_url(&self, endpoint: &EndpointId, operation: &[&str]) -> Url {
        self.url(&[&[MOUNT, endpoint.as_str()], operation].concat())
    }

    /// The URL below which the handler of an endpoint answers HTTP requests.
    pub fn http_url(&self, endpoint: &EndpointId) -> Url {
        self.url(&["http", endpoint.as_str(), ""])
    }

    /// Submits a job. The answer comes once the job is on stable storage.
    ///
    /// With a `key` of the caller's choice, at most 255 printable characters, the host makes one
    /// job of all submissions that have it, so the client repeats this one when it is in doubt.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn run(
        &self,
        endpoint: &EndpointId,
        job: &Submission<'_>,
        key: Option<&str>,
    ) -> Result<Answer<Accepted>, ClientError> {
        let request = self.submission(self.queue_url(endpoint, &["run"]), job, key)?;
        self.send(request, key.is_some()).await
    }

    /// Submits a job, and waits up to `wait` (1 s to 300 s) for its end. If the job has not ended
    /// then, the document says so, and [`Self::wait`] continues to wait.
    ///
    /// `key` is that of [`Self::run`].
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn run_sync(
        &self,
        endpoint: &EndpointId,
        job: &Submission<'_>,
        wait: Duration,
        key: Option<&str>,
    ) -> Result<Answer<StatusDocument<'static>>, ClientError> {
        let url = with_query(self.queue_url(endpoint, &["runsync"]), &[("wait", millis(wait))]);
        let request = self.submission(url, job, key)?.timeout(wait + CALL_TIME_MAX);
        self.send(request, key.is_some()).await
    }

    fn submission(
        &self,
        url: Url,
        job: &Submission<'_>,
        key: Option<&str>,
    ) -> Result<RequestBuilder, ClientError> {
        let body = serde_json::to_vec(job)
            .map_err(|error| ClientError::Unsendable(format!("the job cannot be sent: {error}")))?;
        let request =
            self.request(Method::POST, url).header(CONTENT_TYPE, "application/json").body(body);
        Ok(match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        })
    }

    /// The job's status document.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn status(
        &self,
        endpoint: &EndpointId,
        job: &str,
    ) -> Result<Answer<StatusDocument<'static>>, ClientError> {
        self.get(&[MOUNT, endpoint.as_str(), "status", job], &[]).await
    }

    /// The job's status document once it has ended, or after `wait` (1 s to 300 s).
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn wait(
        &self,
        endpoint: &EndpointId,
        job: &str,
        wait: Duration,
    ) -> Result<Answer<StatusDocument<'static>>, ClientError> {
        let url = self.queue_url(endpoint, &["status-sync", job]);
        let url = with_query(url, &[("wait", millis(wait))]);
        self.send(self.request(Method::GET, url).timeout(wait + CALL_TIME_MAX), true).await
    }

    /// Follows the job's stream to its end, over as many connections as needed: from chunk `from`
    /// on, or from the first chunk that no call has delivered yet.
    pub fn stream(&self, endpoint: &EndpointId, job: &str, from: Option<u64>) -> JobStream {
        JobStream::new(self.clone(), endpoint.clone(), job.to_owned(), from)
    }

    /// One connection of [`Self::stream`], as events; after the event with the id `after`, if it is
    /// given.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn stream_events(
        &self,
        endpoint: &EndpointId,
        job: &str,
        from: Option<u64>,
        after: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        let from: Vec<_> = from.map(|from| ("from", from.to_string())).into_iter().collect();
        let url = with_query(self.queue_url(endpoint, &["stream", job]), &from);
        EventStream::open(self, self.request(Method::GET, url), after).await
    }

    /// What happened to the job.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn timeline(
        &self,
        endpoint: &EndpointId,
        job: &str,
    ) -> Result<Answer<Timeline>, ClientError> {
        self.get(&[MOUNT, endpoint.as_str(), "timeline", job], &[]).await
    }

    /// Stops a running job, or removes a waiting one from the queue. A job that has ended keeps its
    /// status, which is in the answer.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn cancel(
        &self,
        endpoint: &EndpointId,
        job: &str,
    ) -> Result<Answer<Accepted>, ClientError> {
        // A second call finds the job CANCELLED, and answers the same.
        let url = self.queue_url(endpoint, &["cancel", job]);
        self.send(self.request(Method::POST, url), true).await
    }

    /// Queues a job that is FAILED or TIMED_OUT again, with its id and input.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn retry(
        &self,
        endpoint: &EndpointId,
        job: &str,
    ) -> Result<Answer<Accepted>, ClientError> {
        self.post(&[MOUNT, endpoint.as_str(), "retry", job]).await
    }

    /// Removes all waiting jobs.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn purge(&self, endpoint: &EndpointId) -> Result<Answer<Purged>, ClientError> {
        self.post(&[MOUNT, endpoint.as_str(), "purge-queue"]).await
    }

    /// A page of the endpoint's jobs, newest first.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn requests(
        &self,
        endpoint: &EndpointId,
        filter: &RequestFilter,
    ) -> Result<Answer<RequestList>, ClientError> {
        let parameters = [
            ("status", filter.status.map(|status| status.as_str().to_owned())),
            ("limit", filter.limit.map(|limit| limit.to_string())),
            ("cursor", filter.cursor.clone()),
        ];
        let query: Vec<_> =
            parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.get(&[MOUNT, endpoint.as_str(), "requests"], &query).await
    }

    /// The numbers of the endpoint's jobs and workers.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn health(&self, endpoint: &EndpointId) -> Result<Answer<HealthReport>, ClientError> {
        self.get(&[MOUNT, endpoint.as_str(), "health"], &[]).await
    }

    /// Succeeds when the host serves calls. The answer's text is not JSON.
    ///
    /// # Errors
    /// [`ClientError`]; the host refuses with 503 and its reason while it starts or stops.
    pub async fn readiness(&self) -> Result<Answer<()>, ClientError> {
        self.get(&["readyz"], &[]).await
    }
}

fn millis(wait: Duration) -> String {
    wait.as_millis().to_string()
}
