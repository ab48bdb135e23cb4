//! The encoded batch of a frame, without its payloads, which follow in the order in which they are
//! named here. All values are absolute, so a frame can be applied any number of times, as long as
//! frames are applied in order.
//!
//! The encoding is CBOR with a number for each field. **To change it:** a new field gets the next
//! number and `skip_if` or `default`, so that frames without it can still be read; the number of a
//! field that is removed is not used again; no field changes its type. Texts are borrowed from the
//! frame.

use std::io;

use gristmill_core::id::JobId;
use gristmill_core::job::record::HostProcess;
use gristmill_core::time::Timestamp;
use gristmill_core::trace::{CONTEXT_BYTES, TraceContext};
use gristmill_core::webhook::delivery::{Delivery, DeliveryState};
use minicbor::{Decode, Encode};

use crate::damage::damaged;
use crate::format::EndpointKey;
use crate::journal::checksum::SUM_BYTES;
use crate::medium::PayloadLocation;

/// The code of a pending delivery.
pub(crate) const PENDING: u8 = 0;

/// Bytes of a page of the tables.
const TABLE_PAGE_BYTES: u32 = 8_192;

/// About the encoded bytes of a job of an endpoint with short names, so that the vector of a batch
/// seldom grows.
const JOB_BYTES: usize = 192;

/// Bytes of a job's id.
pub(crate) type IdBytes = [u8; 19];

/// A batch.
#[derive(Debug, Default, Encode, Decode)]
pub(crate) struct BatchImage<'a> {
    /// Endpoints that are new, by number.
    #[b(0)]
    #[cbor(skip_if = "Vec::is_empty")]
    pub(crate) endpoints: Vec<(u32, &'a str)>,
    /// Endpoints whose counts have changed: completed, failed and retried jobs so far.
    #[n(1)]
    #[cbor(skip_if = "Vec::is_empty")]
    pub(crate) counts: Vec<(u32, [u64; 3])>,
    /// Rows of usage that have changed.
    #[b(2)]
    #[cbor(skip_if = "Vec::is_empty")]
    pub(crate) usage: Vec<UsageImage<'a>>,
    #[b(3)]
    #[cbor(skip_if = "Vec::is_empty")]
    pub(crate) jobs: Vec<JobImage<'a>>,
    /// Deliveries after an attempt.
    #[b(4)]
    #[cbor(skip_if = "Vec::is_empty")]
    pub(crate) attempts: Vec<DeliveryImage<'a>>,
    #[n(5)]
    #[cbor(skip_if = "Vec::is_empty")]
    pub(crate) dropped_deliveries: Vec<u64>,
    #[n(6)]
    #[cbor(skip_if = "Vec::is_empty")]
    pub(crate) forgotten: Vec<u32>,
    #[n(7)]
    pub(crate) dropped_records_up_to: Option<u64>,
    /// Schedules with their newest notes; without one the note is removed.
    #[b(8)]
    #[cbor(default, skip_if = "Vec::is_empty")]
    pub(crate) schedules: Vec<(u64, Option<&'a str>)>,
}

/// The usage so far in an hour, or in a part of one.
#[derive(Debug, Clone, Copy, Encode, Decode)]
pub(crate) struct UsageImage<'a> {
    #[b(0)]
    pub(crate) endpoint: &'a str,
    #[b(1)]
    pub(crate) template: &'a str,
    #[b(2)]
    pub(crate) owner: &'a str,
    #[n(3)]
    pub(crate) hour: u32,
    #[n(4)]
    pub(crate) run: u32,
    /// In the order of [`UsageSum`](gristmill_core::billing::usage::UsageSum)'s fields.
    #[n(5)]
    pub(crate) sum: [u64; 9],
}

/// A job that has changed.
#[derive(Debug, Encode, Decode)]
pub(crate) struct JobImage<'a> {
    #[n(0)]
    pub(crate) seq: u64,
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub(crate) id: IdBytes,
    #[n(2)]
    pub(crate) endpoint: u32,
    #[b(3)]
    pub(crate) state: StateImage<'a>,
    /// Its idempotency record, if it has one.
    #[n(4)]
    pub(crate) idempotency: Option<IdempotencyImage>,
    /// Length of the new output.
    #[n(5)]
    pub(crate) output: Option<u32>,
    /// The chunks and the output of an earlier attempt are deleted.
    #[n(6)]
    #[cbor(skip_if = "is_default")]
    pub(crate) clears_result: bool,
    /// New pages of chunks: index of the first chunk, and length.
    #[n(7)]
    #[cbor(skip_if = "Vec::is_empty")]
    pub(crate) pages: Vec<(u64, u32)>,
    /// A new webhook.
    #[b(8)]
    pub(crate) delivery: Option<DeliveryImage<'a>>,
    /// Whether its bytes are among the payloads.
    #[n(9)]
    #[cbor(skip_if = "is_default")]
    pub(crate) has_body: bool,
}

/// A job as the tables have it, without its payloads.
#[derive(Debug)]
pub(crate) struct NewJobImage<'a> {
    pub(crate) seq: u64,
    pub(crate) id: IdBytes,
    pub(crate) endpoint: u32,
    pub(crate) fixed: FixedImage<'a>,
    pub(crate) row: RowImage<'a>,
    pub(crate) input_bytes: u32,
}

/// The change of a job.
#[derive(Debug, Encode, Decode)]
#[cbor(flat)]
pub(crate) enum StateImage<'a> {
    /// The job is new.
    #[n(0)]
    New {
        #[b(0)]
        fixed: FixedImage<'a>,
        #[b(1)]
        row: RowImage<'a>,
        /// Length of its input, unless that is not needed any more.
        #[n(2)]
        input: Option<u32>,
    },
    /// The job has changed.
    #[n(1)]
    Changed(#[b(0)] RowImage<'a>),
    /// The job is deleted. The flags name the parts that the database may have.
    #[n(2)]
    Deleted {
        #[n(0)]
        job: bool,
        #[n(1)]
        output: bool,
        #[n(2)]
        chunks: bool,
    },
}

/// An idempotency record.
#[derive(Debug, Clone, Copy, Encode, Decode)]
pub(crate) struct IdempotencyImage {
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub(crate) key: [u8; 16],
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub(crate) content: [u8; 16],
    #[n(2)]
    pub(crate) at: u64,
}

/// The columns of a job's row that never change.
#[derive(Debug, Clone, Copy, Encode, Decode)]
pub(crate) struct FixedImage<'a> {
    #[b(0)]
    pub(crate) owner: &'a str,
    #[n(1)]
    pub(crate) low_priority: bool,
    /// 0: that of the endpoint.
    #[n(2)]
    pub(crate) execution_timeout_ms: u64,
    #[n(3)]
    pub(crate) ttl_ms: u64,
    #[n(4)]
    pub(crate) retention_ms: u64,
    #[n(5)]
    pub(crate) created_at: u64,
    #[b(6)]
    pub(crate) webhook: Option<&'a str>,
    /// Chosen in place of `retention_ms` for jobs that complete.
    #[n(7)]
    pub(crate) retention_completed_ms: Option<u64>,
    /// For jobs that fail or time out.
    #[n(8)]
    pub(crate) retention_failed_ms: Option<u64>,
    /// For jobs that are cancelled.
    #[n(9)]
    pub(crate) retention_cancelled_ms: Option<u64>,
    /// The lines of its [tags](gristmill_core::job::tags::Tags).
    #[b(10)]
    pub(crate) tags: Option<&'a str>,
    /// Its [position in a distributed trace](gristmill_core::trace::TraceContext::to_bytes).
    #[n(11)]
    #[cbor(with = "minicbor::bytes", skip_if = "Option::is_none")]
    pub(crate) trace: Option<[u8; CONTEXT_BYTES]>,
    /// The `tracestate` beside it.
    #[b(12)]
    pub(crate) trace_state: Option<&'a str>,
}

/// The columns of a job's row that can change.
#[derive(Debug, Clone, Copy, Encode, Decode)]
pub(crate) struct RowImage<'a> {
    #[n(0)]
    pub(crate) state: u8,
    #[n(1)]
    pub(crate) claim: u32,
    #[n(2)]
    pub(crate) crashes: u8,
    #[n(3)]
    pub(crate) retries: u16,
    #[n(4)]
    pub(crate) queue_position: u64,
    #[n(5)]
    pub(crate) ttl_at: u64,
    #[b(6)]
    pub(crate) attempt: Option<AttemptImage<'a>>,
    /// When the job was queued again, if it was.
    #[n(7)]
    pub(crate) queued_at: Option<u64>,
    /// Bytes of the attempt's chunks and output.
    #[n(8)]
    #[cbor(skip_if = "is_default")]
    pub(crate) result_bytes: u64,
    /// The attempts before this one, the usage of all, and the note about a shortened ttl, as
    /// [`past`](crate::format::past) writes them.
    #[b(9)]
    #[cbor(with = "minicbor::bytes", skip_if = "Option::is_none")]
    pub(crate) past: Option<&'a [u8]>,
    /// Losses of hosts that are no crashes. Only hosts that share a database have any, so the
    /// tables of a data directory have no column for them.
    #[n(10)]
    #[cbor(skip_if = "is_default")]
    pub(crate) losses: u8,
}

/// The results of the last attempt.
#[derive(Debug, Clone, Copy, Default, Encode, Decode)]
pub(crate) struct AttemptImage<'a> {
    #[n(0)]
    pub(crate) started_at: Option<u64>,
    #[n(1)]
    pub(crate) finished_at: Option<u64>,
    #[b(2)]
    pub(crate) worker: Option<&'a str>,
    #[b(3)]
    pub(crate) error: Option<&'a str>,
    #[n(4)]
    #[cbor(skip_if = "is_default")]
    pub(crate) chunk_count: u64,
    /// The process of another host that runs it.
    #[n(5)]
    #[cbor(skip_if = "Option::is_none")]
    pub(crate) host: Option<HostImage>,
}

/// A process of a host that shares the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(crate) struct HostImage {
    #[n(0)]
    pub(crate) directory: u64,
    #[n(1)]
    pub(crate) instance: u64,
}

impl From<HostProcess> for HostImage {
    fn from(HostProcess { directory, instance }: HostProcess) -> Self {
        Self { directory, instance }
    }
}

impl From<HostImage> for HostProcess {
    fn from(HostImage { directory, instance }: HostImage) -> Self {
        Self { directory, instance }
    }
}

/// The present state of a delivery.
#[derive(Debug, Encode, Decode)]
pub(crate) struct DeliveryImage<'a> {
    #[n(0)]
    pub(crate) id: u64,
    #[n(1)]
    pub(crate) endpoint: u32,
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    pub(crate) job: IdBytes,
    #[b(3)]
    pub(crate) job_status: &'a str,
    #[n(4)]
    pub(crate) job_retries: u32,
    #[b(5)]
    pub(crate) url: &'a str,
    #[n(6)]
    pub(crate) body_bytes: u64,
    #[n(7)]
    pub(crate) created_at: u64,
    #[n(8)]
    pub(crate) state: u8,
    #[n(9)]
    pub(crate) at: u64,
    #[n(10)]
    pub(crate) attempts: u32,
    #[n(11)]
    pub(crate) last_status: Option<u16>,
    #[b(12)]
    pub(crate) last_error: Option<&'a str>,
    /// The times of attempts, and the statuses of their answers.
    #[n(13)]
    #[cbor(skip_if = "Vec::is_empty")]
    pub(crate) made: Vec<(u64, Option<u16>)>,
    /// That of its job.
    #[n(14)]
    #[cbor(with = "minicbor::bytes", skip_if = "Option::is_none")]
    pub(crate) trace: Option<[u8; CONTEXT_BYTES]>,
    /// The `tracestate` beside it.
    #[b(15)]
    pub(crate) trace_state: Option<&'a str>,
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl<'a> DeliveryImage<'a> {
    pub(crate) fn of(endpoint: EndpointKey, delivery: &'a Delivery) -> Self {
        let (state, at) = state_columns(delivery.state);
        Self {
            id: delivery.id.0,
            endpoint: endpoint.0,
            job: delivery.job.to_bytes(),
            job_status: delivery.job_status.as_str(),
            job_retries: delivery.job_retries,
            url: &delivery.url,
            body_bytes: delivery.body_bytes,
            created_at: delivery.created_at.as_millis(),
            state,
            at: at.as_millis(),
            attempts: delivery.attempts,
            last_status: delivery.last.status,
            last_error: delivery.last.error.as_deref(),
            made: delivery.made.iter().map(|made| (made.at.as_millis(), made.status)).collect(),
            trace: delivery.trace.as_ref().map(TraceContext::to_bytes),
            trace_state: delivery.trace.as_ref().and_then(|trace| trace.state.as_str()),
        }
    }
}

/// The codes are on disk and must not change.
pub(crate) fn state_columns(state: DeliveryState) -> (u8, Timestamp) {
    match state {
        DeliveryState::Pending { due_at } => (PENDING, due_at),
        DeliveryState::Delivered { at } => (1, at),
        DeliveryState::GivenUp { at } => (2, at),
    }
}

impl JobImage<'_> {
    pub(crate) fn job_id(&self) -> Option<JobId> {
        JobId::from_bytes(&self.id).ok()
    }

    /// The locations of its payloads, each with its checksum; the first is at `at`. Moves `at`
    /// behind the last payload.
    fn locations(&self, at: &mut PayloadLocation) -> JobLocations {
        let mut next = |len: u32| {
            let location = PayloadLocation { len, ..*at };
            at.at = at.at.saturating_add(len);
            location
        };
        let input = match &self.state {
            StateImage::New { input, .. } => input.map(&mut next),
            StateImage::Changed(_) | StateImage::Deleted { .. } => None,
        };
        let output = self.output.map(&mut next);
        let pages = self.pages.iter().map(|&(first, len)| (first, next(len))).collect();
        let body_len = self.delivery.as_ref().filter(|_| self.has_body).map(|new| new.body_bytes);
        let body_len = body_len.and_then(|len| u32::try_from(len).ok());
        let body = body_len.map(|len| next(len.saturating_add(SUM_BYTES)));
        JobLocations { input, output, pages, body }
    }
}

/// The locations of the payloads of a [`JobImage`].
#[derive(Debug, Default)]
pub(crate) struct JobLocations {
    pub(crate) input: Option<PayloadLocation>,
    pub(crate) output: Option<PayloadLocation>,
    /// By the index of the first chunk.
    pub(crate) pages: Vec<(u64, PayloadLocation)>,
    /// The bytes that its webhook sends.
    pub(crate) body: Option<PayloadLocation>,
}

impl<'a> BatchImage<'a> {
    /// Encodes the batch.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(JOB_BYTES * (1 + self.jobs.len()));
        minicbor::encode(self, &mut bytes).expect("a vector takes all bytes");
        bytes
    }

    /// Decodes a batch.
    ///
    /// # Errors
    /// The fault of the bytes.
    pub(crate) fn decode(encoded_batch: &'a [u8]) -> Result<Self, String> {
        let mut decoder = minicbor::Decoder::new(encoded_batch);
        let image = decoder.decode().map_err(|error| error.to_string())?;
        match encoded_batch.len() - decoder.position() {
            0 => Ok(image),
            rest => Err(format!("{rest} bytes follow it")),
        }
    }

    /// The locations of the jobs' payloads, which are all of `payloads`.
    ///
    /// # Errors
    /// When the payloads have another length together.
    pub(crate) fn checked_locations(
        &self,
        payloads: PayloadLocation,
    ) -> io::Result<Vec<JobLocations>> {
        let mut at = payloads;
        let locations = self.jobs.iter().map(|job| job.locations(&mut at)).collect();
        if at.at != payloads.at + payloads.len {
            return Err(damaged("a frame's payloads have another length than it states"));
        }
        Ok(locations)
    }

    /// Bytes that a checkpoint writes to the tables for this batch, at most: its rows, and each
    /// payload that does not stay in the journal. A payload beyond a page takes whole pages, so it
    /// counts with a page more, and a smaller one twice.
    pub(crate) fn owed_bytes(&self, encoded_bytes: usize, locations: &[JobLocations]) -> u64 {
        let moved = |len: u32| u64::from(len) + u64::from(len.min(TABLE_PAGE_BYTES));
        let each = |job: &JobLocations| -> u64 {
            let JobLocations { input, output, pages, body } = job;
            let small = [input, output].into_iter().flatten().filter(|it| !it.is_kept());
            let pages = pages.iter().map(|(_, page)| page);
            small.chain(pages).chain(body).map(|location| moved(location.len)).sum()
        };
        2 * encoded_bytes as u64 + locations.iter().map(each).sum::<u64>()
    }

    /// The locations of the jobs' payloads, which begin at `payloads`; each includes its checksum.
    pub(crate) fn locations(
        &self,
        payloads: PayloadLocation,
    ) -> impl Iterator<Item = JobLocations> + use<'_, 'a> {
        let mut at = payloads;
        self.jobs.iter().map(move |job| job.locations(&mut at))
    }
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
