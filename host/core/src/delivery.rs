//! Deliveries of webhooks: the trait of the store that keeps the outbox, and the record of each
//! delivery.

use async_trait::async_trait;

use crate::id::{EndpointId, JobId};
use crate::job::JobStatus;
use crate::payload::Json;
use crate::record::JobRecord;
use crate::store::StoreError;
use crate::time::Timestamp;

/// Newest ended deliveries that an endpoint's log keeps.
pub const DELIVERY_LOG_MAX: usize = 1_000;

/// Most pending deliveries of an endpoint. A further delivery is given up before its first attempt,
/// since the endpoint's receivers have failed or been slow for long.
pub const DELIVERIES_PENDING_MAX: usize = 100_000;

/// Longest stored error of an attempt, in bytes. Longer texts are cut, because the log of
/// deliveries is in memory.
pub const DELIVERY_ERROR_BYTES_MAX: usize = 512;

/// Keeps webhooks until their receivers have accepted them, or the host gives them up.
///
/// **Promise.** When a job with a webhook ends, its delivery and the bytes to send are on stable
/// storage together with that end; neither the job's deletion nor a restart removes them. A job
/// that is purged, or whose ttl passes, has no delivery. Deleting an endpoint deletes its
/// deliveries. An endpoint has at most [`DELIVERIES_PENDING_MAX`] pending deliveries, plus those
/// that one transaction adds.
///
/// **Signals.** When a delivery is added the store calls
/// [`Signals::delivery_added`](crate::signals::Signals::delivery_added).
///
/// **Time** is the store's.
#[async_trait]
pub trait DeliveryStore: Send + Sync + std::fmt::Debug {
    /// Deliveries whose next attempt is due: for each target the `per_target` that have been due
    /// longest, and `count_max` in total. A delivery stays due until
    /// [`record_attempt`](Self::record_attempt).
    async fn due_deliveries(
        &self,
        per_target: usize,
        count_max: usize,
    ) -> Result<DueDeliveries, StoreError>;

    /// The bytes to send, the same for each attempt; `None` when the delivery has ended.
    async fn delivery_body(&self, id: DeliveryId) -> Result<Option<Json>, StoreError>;

    /// Counts an attempt and stores its outcome. On stable storage when the future resolves. Does
    /// nothing if the delivery has ended or its endpoint is deleted.
    async fn record_attempt(
        &self,
        id: DeliveryId,
        report: AttemptReport,
        next: AfterAttempt,
    ) -> Result<(), StoreError>;

    /// The newest deliveries of the endpoint, newest first, up to `count_max`.
    async fn deliveries(
        &self,
        endpoint: &EndpointId,
        count_max: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
}

/// The number of a delivery in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub u64);

/// A delivery without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its number.
    pub id: DeliveryId,
    /// The endpoint whose secret signs it.
    pub endpoint: EndpointId,
    /// The job that ended.
    pub job: JobId,
    /// The job's final status.
    pub job_status: JobStatus,
    /// How often the job had been queued again.
    pub job_retries: u32,
    /// The URL to call.
    pub url: String,
    /// Size of the body.
    pub body_bytes: u64,
    /// When the job ended.
    pub created_at: Timestamp,
    /// Its state.
    pub state: DeliveryState,
    /// Attempts that were made.
    pub attempts: u32,
    /// The outcome of the last attempt.
    pub last: AttemptReport,
}

impl Delivery {
    /// A new delivery for the job's end, due at once.
    pub fn pending(id: DeliveryId, record: &JobRecord, url: String, body_bytes: u64) -> Self {
        let created_at = record.finished_at.unwrap_or(record.created_at);
        Self {
            id,
            endpoint: record.endpoint.clone(),
            job: record.id,
            job_status: record.status,
            job_retries: record.retries,
            url,
            body_bytes,
            created_at,
            state: DeliveryState::Pending { due_at: created_at },
            attempts: 0,
            last: AttemptReport::default(),
        }
    }

    /// The same, given up without any attempt: the outbox of its endpoint is full.
    #[must_use]
    pub fn refused(self) -> Self {
        let error = format!("not sent: {DELIVERIES_PENDING_MAX} webhooks of this endpoint wait");
        let last = AttemptReport { status: None, error: Some(error) };
        Self { state: DeliveryState::GivenUp { at: self.created_at }, last, ..self }
    }

    /// The `webhook-id`: the same for each attempt, and different for each end of a job.
    pub fn webhook_id(&self) -> String {
        format!("msg_{}_{}", self.job, self.job_retries)
    }

    /// The delivery after an attempt that ended at `now`.
    #[must_use]
    pub fn after(&self, mut report: AttemptReport, next: AfterAttempt, now: Timestamp) -> Self {
        if let Some(error) = &mut report.error {
            error.truncate(error.floor_char_boundary(DELIVERY_ERROR_BYTES_MAX));
        }
        let state = match next {
            AfterAttempt::Delivered => DeliveryState::Delivered { at: now },
            AfterAttempt::TryAgain { after_ms } => {
                DeliveryState::Pending { due_at: now.plus_millis(after_ms) }
            }
            AfterAttempt::GiveUp => DeliveryState::GivenUp { at: now },
        };
        Self { state, attempts: self.attempts + 1, last: report, ..self.clone() }
    }

    /// The receiver: the host and port of the URL. Empty if the URL has none.
    pub fn target(&self) -> String {
        let Ok(url) = url::Url::parse(&self.url) else { return String::new() };
        let port = url.port_or_known_default().unwrap_or_default();
        format!("{}:{port}", url.host_str().unwrap_or_default())
    }
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// There will be an attempt.
    Pending {
        /// The earliest time of the next attempt.
        due_at: Timestamp,
    },
    /// It was received.
    Delivered {
        /// The time of the attempt.
        at: Timestamp,
    },
    /// There will be no more attempts.
    GivenUp {
        /// The time when it was given up.
        at: Timestamp,
    },
}

/// The outcome of one attempt; empty before the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptReport {
    /// The status code of the answer, if there was one.
    pub status: Option<u16>,
    /// Why it does not count as received.
    pub error: Option<String>,
}

/// What the host does after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterAttempt {
    /// The webhook was received.
    Delivered,
    /// The host makes another attempt after this time.
    TryAgain {
        /// In milliseconds from now.
        after_ms: u64,
    },
    /// The host makes no further attempt.
    GiveUp,
}

/// Deliveries that are due now.
#[derive(Debug, Clone)]
pub struct DueDeliveries {
    /// The due deliveries, those that have been due longest first.
    pub due: Vec<Delivery>,
    /// When the next other delivery is due.
    pub next: Timestamp,
}
