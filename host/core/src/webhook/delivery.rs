//! Deliveries of webhooks: the trait of the store that keeps the outbox, and the record of each
//! delivery.

use std::time::Duration;

use async_trait::async_trait;

use crate::id::{EndpointId, JobId, OwnerId};
use crate::job::payload::Json;
use crate::job::record::JobRecord;
use crate::job::state::JobStatus;
use crate::store_error::StoreError;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// Newest ended deliveries that an endpoint's log keeps.
pub const DELIVERY_LOG_MAX: usize = 1_000;

/// Most pending deliveries of an endpoint. A further delivery is given up before its first attempt:
/// the endpoint's receivers must have failed, or been slow, for long.
pub const DELIVERIES_PENDING_MAX: usize = 100_000;

/// Most bytes of the URLs of an endpoint's pending deliveries (32 MiB): they are in memory, and a
/// URL may have 2,048 bytes. A further delivery is given up before its first attempt.
pub const DELIVERIES_PENDING_URL_BYTES_MAX: usize = 32 << 20;

/// Attempts that are under way at one time. An owner's endpoints have
/// [a share](crate::sharing::shares): 48 alone.
pub const ATTEMPTS_MAX: usize = 64;

/// Attempts of one endpoint that are under way at one time: a quarter of all.
pub const ATTEMPTS_PER_ENDPOINT_MAX: usize = ATTEMPTS_MAX / 4;

/// Attempts of one endpoint to one host and port that are under way at one time.
pub const ATTEMPTS_PER_TARGET_MAX: usize = 4;

/// Wait between two attempts of a delivery, in milliseconds.
pub const RETRY_INTERVAL_MS: u64 = 10_000;

/// Longest error of an attempt that is kept, in bytes. Longer texts are cut: the log of deliveries
/// is in memory.
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
    /// Starts the attempts that are due, as far as the shares of the owners, endpoints and
    /// receivers permit ([`ATTEMPTS_MAX`] and its parts). They take turns, those with the fewest
    /// attempts under way first; a receiver that failed last waits behind the other receivers of
    /// its endpoint. The caller makes the attempts, and names each in `ended` of a later call once
    /// it has ended: its share is in use until then, and the delivery is not started again. An
    /// attempt that ended without [`record_attempt`](Self::record_attempt) counts as not made: its
    /// delivery is due again [`RETRY_INTERVAL_MS`] later. A restart ends all attempts.
    ///
    /// The time between two attempts passes by [`Clock::elapsed`](crate::time::Clock::elapsed): a
    /// wall clock that jumps neither delays nor hastens one. A first attempt is due at once.
    ///
    /// Costs O(log n) for each delivery that is returned, has ended, or was added since the last
    /// call; a call handles at most [`ARRIVALS_MAX`] added ones.
    async fn begin_attempts(
        &self,
        ended: &[DeliveryId],
        owner_of: OwnerOf<'_>,
    ) -> Result<DueDeliveries, StoreError>;

    /// The bytes to send, the same for each attempt; `None` when the delivery has ended.
    async fn delivery_body(&self, id: DeliveryId) -> Result<Option<Json>, StoreError>;

    /// Counts an attempt and stores its outcome. On stable storage when the future resolves. Does
    /// nothing if the delivery has ended or its endpoint is deleted.
    async fn record_attempt(
        &self,
        id: DeliveryId,
        report: DeliveryOutcome,
        next: AfterAttempt,
    ) -> Result<(), StoreError>;

    /// The newest deliveries of the endpoint, newest first, up to `count_max`.
    async fn deliveries(
        &self,
        endpoint: &EndpointId,
        count_max: usize,
    ) -> Result<Vec<Delivery>, StoreError>;

    /// The deliveries of a job among the newest [`DELIVERY_LOG_MAX`] of its endpoint, oldest first:
    /// one for each end of the job.
    async fn deliveries_of(
        &self,
        endpoint: &EndpointId,
        job: JobId,
    ) -> Result<Vec<Delivery>, StoreError>;
}

/// Decides which receivers webhooks may have.
pub trait WebhookReceivers: Send + Sync + std::fmt::Debug {
    /// Refuses a URL whose host is an address that no webhook is sent to, so that its submission
    /// can be refused. The addresses of a name are known, and checked, only when a webhook is sent.
    ///
    /// # Errors
    /// [`ReceiverRefused`].
    fn check(&self, url: &str) -> Result<(), ReceiverRefused>;
}

/// Why no webhook is sent to a URL, and what permits it. A repetition is refused as well, until the
/// operator changes the settings of the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReceiverRefused(pub String);

impl From<String> for ReceiverRefused {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

/// Most added deliveries that one call of [`DeliveryStore::begin_attempts`] handles, so that it
/// holds the store's lock only briefly. The next call handles the rest.
pub const ARRIVALS_MAX: usize = 1_024;

/// Finds the owner of an endpoint; `None` when the catalog does not have the endpoint.
pub type OwnerOf<'a> = &'a (dyn Fn(&EndpointId) -> Option<OwnerId> + Sync);

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
    /// The same attempts, oldest first.
    pub made: Vec<MadeAttempt>,
    /// The outcome of the last attempt.
    pub last: DeliveryOutcome,
    /// The position of the job in a distributed trace.
    pub trace: Option<TraceContext>,
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
            made: Vec::new(),
            last: DeliveryOutcome::default(),
            trace: record.trace.clone(),
        }
    }

    /// The same, given up without any attempt.
    #[must_use]
    pub fn refused(self, why: NotSent) -> Self {
        let last = DeliveryOutcome { status: None, error: Some(why.to_string()) };
        Self { state: DeliveryState::GivenUp { at: self.created_at }, last, ..self }
    }

    /// The `webhook-id`: the same for each attempt, and different for each end of a job.
    pub fn webhook_id(&self) -> String {
        format!("msg_{}_{}", self.job, self.job_retries)
    }

    /// The delivery after an attempt that ended at `now`.
    #[must_use]
    pub fn after(&self, mut report: DeliveryOutcome, next: AfterAttempt, now: Timestamp) -> Self {
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
        let made = MadeAttempt { at: now, status: report.status };
        let made = self.made.iter().copied().chain([made]).collect();
        Self { state, attempts: self.attempts + 1, made, last: report, ..self.clone() }
    }

    /// The receiver: the host and the port of the URL. None if the URL has none.
    pub fn receiver(&self) -> Option<(String, u16)> {
        let url = url::Url::parse(&self.url).ok()?;
        Some((url.host_str()?.to_owned(), url.port_or_known_default()?))
    }

    /// The receiver as `host:port`. Empty if the URL has none.
    pub fn target(&self) -> String {
        self.receiver().map(|(host, port)| format!("{host}:{port}")).unwrap_or_default()
    }
}

/// Why a delivery is given up before its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The outbox of its endpoint is full.
    #[error(
        "not sent: {DELIVERIES_PENDING_MAX} webhooks of this endpoint wait, or their URLs have \
         {} MiB, which are the limits",
        DELIVERIES_PENDING_URL_BYTES_MAX >> 20
    )]
    OutboxFull,
    /// Its body would exceed the owner's [share of the disk](crate::sharing::disk_share).
    #[error(
        "not sent: this webhook takes {kib} KiB, and the jobs, results, waiting webhooks, files and \
         handlers of the job's owner take {held_mib} MiB of the host's disk; together they would \
         exceed the owner's share of it"
    )]
    OwnerDiskFull {
        /// The size of the webhook.
        kib: u64,
        /// The bytes that the owner has.
        held_mib: u64,
    },
    /// The memory for webhooks is full, or the owner has its share of it.
    #[error(
        "not sent: the webhooks of the job's owner that wait to be sent, and the webhook URLs of its \
         jobs, take {held_mib} MiB of the host's memory, and there is no room for more"
    )]
    OwnerMemoryFull {
        /// MiB that the owner's webhooks take.
        held_mib: u64,
    },
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// There will be an attempt.
    Pending {
        /// The earliest time of the next attempt.
        due_at: Timestamp,
    },
    /// The receiver has accepted it.
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

/// An attempt that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeAttempt {
    /// When it ended.
    pub at: Timestamp,
    /// The status code of the answer, if there was one.
    pub status: Option<u16>,
}

/// The outcome of one attempt; empty before the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryOutcome {
    /// The status code of the answer, if there was one.
    pub status: Option<u16>,
    /// Why the receiver did not accept it.
    pub error: Option<String>,
}

/// The host's action after an attempt.
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

/// The attempts to make now.
#[derive(Debug, Clone)]
pub struct DueDeliveries {
    /// In the order in which they were started.
    pub due: Vec<Delivery>,
    /// The time of the next call if no delivery is added and no attempt ends before, by
    /// [`Clock::elapsed`](crate::time::Clock::elapsed); `None`: no call is needed before that.
    pub next_at: Option<Duration>,
}
