//! Frames of schema versions 6 and 7. Their encoding is postcard's: fields follow each other without
//! names or numbers, so a type here is part of the format and must not change. Nothing writes this
//! encoding any more. The data directories in `tests/fixtures/data` have such frames.

use serde::Deserialize;

use crate::format::image::{
    AttemptImage, BatchImage, DeliveryImage, FixedImage, IdBytes, IdempotencyImage, JobImage,
    RowImage, StateImage, UsageImage,
};

/// Decodes a batch.
///
/// # Errors
/// The fault of the bytes.
pub(crate) fn decode(encoded_batch: &[u8]) -> Result<BatchImage<'_>, String> {
    let text = |error: postcard::Error| error.to_string();
    let (batch, rest): (BatchFields<'_>, _) =
        postcard::take_from_bytes(encoded_batch).map_err(text)?;
    let mut image = BatchImage::from(batch);
    if !rest.is_empty() {
        let extensions: Vec<(u64, RowExtension)> = postcard::from_bytes(rest).map_err(text)?;
        add_extensions(&mut image.jobs, &extensions);
    }
    Ok(image)
}

/// Values of a job's row that version 6 did not have: when it was queued again, and the bytes of its
/// results. They follow the batch, by the number of the job, and are left out where both are the
/// default, so frames of version 6 end before them.
type RowExtension = (Option<u64>, u64);

/// Adds the values behind the batch to the rows of its jobs. Both are in the order of the jobs.
fn add_extensions(jobs: &mut [JobImage<'_>], extensions: &[(u64, RowExtension)]) {
    let mut jobs = jobs.iter_mut();
    for (seq, (queued_at, result_bytes)) in extensions {
        let Some(job) = jobs.find(|job| job.seq == *seq) else { return };
        if let StateImage::New { row, .. } | StateImage::Changed(row) = &mut job.state {
            (row.queued_at, row.result_bytes) = (*queued_at, *result_bytes);
        }
    }
}

#[derive(Deserialize)]
struct BatchFields<'a> {
    #[serde(borrow)]
    endpoints: Vec<(u32, &'a str)>,
    counts: Vec<(u32, [u64; 3])>,
    #[serde(borrow)]
    usage: Vec<UsageFields<'a>>,
    #[serde(borrow)]
    jobs: Vec<JobFields<'a>>,
    #[serde(borrow)]
    attempts: Vec<DeliveryFields<'a>>,
    dropped_deliveries: Vec<u64>,
    forgotten: Vec<u32>,
    dropped_records_up_to: Option<u64>,
}

impl<'a> From<BatchFields<'a>> for BatchImage<'a> {
    fn from(batch: BatchFields<'a>) -> Self {
        Self {
            endpoints: batch.endpoints,
            counts: batch.counts,
            usage: batch.usage.into_iter().map(UsageImage::from).collect(),
            jobs: batch.jobs.into_iter().map(JobImage::from).collect(),
            attempts: batch.attempts.into_iter().map(DeliveryImage::from).collect(),
            dropped_deliveries: batch.dropped_deliveries,
            forgotten: batch.forgotten,
            dropped_records_up_to: batch.dropped_records_up_to,
        }
    }
}

#[derive(Deserialize)]
struct UsageFields<'a> {
    endpoint: &'a str,
    template: &'a str,
    owner: &'a str,
    hour: u32,
    run: u32,
    sum: [u64; 9],
}

impl<'a> From<UsageFields<'a>> for UsageImage<'a> {
    fn from(usage: UsageFields<'a>) -> Self {
        let UsageFields { endpoint, template, owner, hour, run, sum } = usage;
        Self { endpoint, template, owner, hour, run, sum }
    }
}

#[derive(Deserialize)]
struct JobFields<'a> {
    seq: u64,
    id: IdBytes,
    endpoint: u32,
    #[serde(borrow)]
    state: StateFields<'a>,
    /// Key, content and time.
    idempotency: Option<([u8; 16], [u8; 16], u64)>,
    output: Option<u32>,
    clears_result: bool,
    pages: Vec<(u64, u32)>,
    #[serde(borrow)]
    delivery: Option<DeliveryFields<'a>>,
    has_body: bool,
}

impl<'a> From<JobFields<'a>> for JobImage<'a> {
    fn from(job: JobFields<'a>) -> Self {
        Self {
            seq: job.seq,
            id: job.id,
            endpoint: job.endpoint,
            state: job.state.into(),
            idempotency: job.idempotency.map(|(key, content, at)| IdempotencyImage {
                key,
                content,
                at,
            }),
            output: job.output,
            clears_result: job.clears_result,
            pages: job.pages,
            delivery: job.delivery.map(DeliveryImage::from),
            has_body: job.has_body,
        }
    }
}

#[derive(Deserialize)]
enum StateFields<'a> {
    New {
        #[serde(borrow)]
        fixed: FixedFields<'a>,
        #[serde(borrow)]
        row: RowFields<'a>,
        input: Option<u32>,
    },
    Changed(#[serde(borrow)] RowFields<'a>),
    Deleted {
        job: bool,
        output: bool,
        chunks: bool,
    },
}

impl<'a> From<StateFields<'a>> for StateImage<'a> {
    fn from(state: StateFields<'a>) -> Self {
        match state {
            StateFields::New { fixed, row, input } => {
                Self::New { fixed: fixed.into(), row: row.into(), input }
            }
            StateFields::Changed(row) => Self::Changed(row.into()),
            StateFields::Deleted { job, output, chunks } => Self::Deleted { job, output, chunks },
        }
    }
}

#[derive(Deserialize)]
struct FixedFields<'a> {
    owner: &'a str,
    low_priority: bool,
    execution_timeout_ms: u64,
    ttl_ms: u64,
    retention_ms: u64,
    created_at: u64,
    webhook: Option<&'a str>,
}

impl<'a> From<FixedFields<'a>> for FixedImage<'a> {
    fn from(fixed: FixedFields<'a>) -> Self {
        Self {
            owner: fixed.owner,
            low_priority: fixed.low_priority,
            execution_timeout_ms: fixed.execution_timeout_ms,
            ttl_ms: fixed.ttl_ms,
            retention_ms: fixed.retention_ms,
            created_at: fixed.created_at,
            webhook: fixed.webhook,
            retention_completed_ms: None,
            retention_failed_ms: None,
            retention_cancelled_ms: None,
            tags: None,
            trace: None,
            trace_state: None,
        }
    }
}

#[derive(Deserialize)]
struct RowFields<'a> {
    state: u8,
    claim: u32,
    crashes: u8,
    retries: u16,
    queue_position: u64,
    ttl_at: u64,
    #[serde(borrow)]
    attempt: Option<AttemptFields<'a>>,
}

impl<'a> From<RowFields<'a>> for RowImage<'a> {
    fn from(row: RowFields<'a>) -> Self {
        Self {
            state: row.state,
            claim: row.claim,
            crashes: row.crashes,
            retries: row.retries,
            queue_position: row.queue_position,
            ttl_at: row.ttl_at,
            attempt: row.attempt.map(AttemptImage::from),
            queued_at: None,
            result_bytes: 0,
            past: None,
        }
    }
}

#[derive(Deserialize)]
struct AttemptFields<'a> {
    started_at: Option<u64>,
    finished_at: Option<u64>,
    worker: Option<&'a str>,
    error: Option<&'a str>,
    chunk_count: u64,
}

impl<'a> From<AttemptFields<'a>> for AttemptImage<'a> {
    fn from(attempt: AttemptFields<'a>) -> Self {
        let AttemptFields { started_at, finished_at, worker, error, chunk_count } = attempt;
        Self { started_at, finished_at, worker, error, chunk_count }
    }
}

#[derive(Deserialize)]
struct DeliveryFields<'a> {
    id: u64,
    endpoint: u32,
    job: IdBytes,
    job_status: &'a str,
    job_retries: u32,
    url: &'a str,
    body_bytes: u64,
    created_at: u64,
    state: u8,
    at: u64,
    attempts: u32,
    last_status: Option<u16>,
    last_error: Option<&'a str>,
}

impl<'a> From<DeliveryFields<'a>> for DeliveryImage<'a> {
    fn from(delivery: DeliveryFields<'a>) -> Self {
        Self {
            id: delivery.id,
            endpoint: delivery.endpoint,
            job: delivery.job,
            job_status: delivery.job_status,
            job_retries: delivery.job_retries,
            url: delivery.url,
            body_bytes: delivery.body_bytes,
            created_at: delivery.created_at,
            state: delivery.state,
            at: delivery.at,
            attempts: delivery.attempts,
            last_status: delivery.last_status,
            last_error: delivery.last_error,
            made: Vec::new(),
            trace: None,
            trace_state: None,
        }
    }
}
