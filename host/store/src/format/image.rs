//! The encoded batch of a frame, without its payloads, which follow in the order in which they are
//! named here. All values are absolute, so a frame can be applied any number of times, as long as
//! frames are applied in order.
//!
//! The encoding is postcard's: numbers take as many bytes as they need, and texts are borrowed from
//! the frame.

use std::io;

use gristmill_core::delivery::{Delivery, DeliveryState};
use gristmill_core::id::JobId;
use gristmill_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::damage::damaged;
use crate::format::EndpointKey;
use crate::journal::checksum::SUM_BYTES;
use crate::journal::frame::Frame;
use crate::journal::segment::JournalLocation;

/// The code of a pending delivery.
pub(crate) const PENDING: u8 = 0;

/// Bytes of a job's id.
pub(crate) type IdBytes = [u8; 19];

/// A batch.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct BatchImage<'a> {
    /// Endpoints that are new, by number.
    #[serde(borrow)]
    pub(crate) endpoints: Vec<(u32, &'a str)>,
    /// Endpoints whose counts have changed: completed, failed and retried jobs so far.
    pub(crate) counts: Vec<(u32, [u64; 3])>,
    /// Rows of usage that have changed.
    #[serde(borrow)]
    pub(crate) usage: Vec<UsageImage<'a>>,
    #[serde(borrow)]
    pub(crate) jobs: Vec<JobImage<'a>>,
    /// Deliveries after an attempt.
    #[serde(borrow)]
    pub(crate) attempts: Vec<DeliveryImage<'a>>,
    pub(crate) dropped_deliveries: Vec<u64>,
    pub(crate) forgotten: Vec<u32>,
    pub(crate) dropped_records_up_to: Option<u64>,
}

/// Values of a job's row that version 6 did not have. They follow the other content of a frame, by
/// the number of the job, and are left out where all of them are the default: frames of version 6
/// end before them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowExtension {
    /// When the job was queued again, if it was.
    pub(crate) queued_at: Option<u64>,
    /// Bytes of the attempt's chunks and output.
    pub(crate) result_bytes: u64,
}

/// The usage so far in an hour, or in a part of one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct UsageImage<'a> {
    pub(crate) endpoint: &'a str,
    pub(crate) template: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) hour: u32,
    pub(crate) run: u32,
    /// In the order of [`UsageSum`](gristmill_core::usage::UsageSum)'s fields.
    pub(crate) sum: [u64; 9],
}

/// A job that has changed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JobImage<'a> {
    pub(crate) seq: u64,
    pub(crate) id: IdBytes,
    pub(crate) endpoint: u32,
    #[serde(borrow)]
    pub(crate) state: StateImage<'a>,
    /// Its idempotency record, if it has one.
    pub(crate) idempotency: Option<IdempotencyImage>,
    /// Length of the new output.
    pub(crate) output: Option<u32>,
    /// The chunks and the output of an earlier attempt are deleted.
    pub(crate) clears_result: bool,
    /// New pages of chunks: index of the first chunk, and length.
    pub(crate) pages: Vec<(u64, u32)>,
    /// A new webhook.
    #[serde(borrow)]
    pub(crate) delivery: Option<DeliveryImage<'a>>,
    /// Whether its bytes are among the payloads.
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
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StateImage<'a> {
    /// The job is new.
    New {
        #[serde(borrow)]
        fixed: FixedImage<'a>,
        #[serde(borrow)]
        row: RowImage<'a>,
        /// Length of its input, unless that is not needed any more.
        input: Option<u32>,
    },
    /// The job has changed.
    Changed(#[serde(borrow)] RowImage<'a>),
    /// The job is deleted. The flags name the parts that the database may have.
    Deleted { job: bool, output: bool, chunks: bool },
}

/// An idempotency record.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct IdempotencyImage {
    pub(crate) key: [u8; 16],
    pub(crate) content: [u8; 16],
    pub(crate) at: u64,
}

/// The columns of a job's row that never change.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct FixedImage<'a> {
    pub(crate) owner: &'a str,
    pub(crate) low_priority: bool,
    pub(crate) execution_timeout_ms: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) retention_ms: u64,
    pub(crate) created_at: u64,
    pub(crate) webhook: Option<&'a str>,
}

/// The columns of a job's row that can change.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RowImage<'a> {
    pub(crate) state: u8,
    pub(crate) claim: u32,
    pub(crate) crashes: u8,
    pub(crate) retries: u16,
    pub(crate) queue_position: u64,
    pub(crate) ttl_at: u64,
    #[serde(borrow)]
    pub(crate) attempt: Option<AttemptImage<'a>>,
    #[serde(skip)]
    pub(crate) extension: RowExtension,
}

/// The results of the last attempt.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct AttemptImage<'a> {
    pub(crate) started_at: Option<u64>,
    pub(crate) finished_at: Option<u64>,
    pub(crate) worker: Option<&'a str>,
    pub(crate) error: Option<&'a str>,
    pub(crate) chunk_count: u64,
}

/// The present state of a delivery.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeliveryImage<'a> {
    pub(crate) id: u64,
    pub(crate) endpoint: u32,
    pub(crate) job: IdBytes,
    pub(crate) job_status: &'a str,
    pub(crate) job_retries: u32,
    pub(crate) url: &'a str,
    pub(crate) body_bytes: u64,
    pub(crate) created_at: u64,
    pub(crate) state: u8,
    pub(crate) at: u64,
    pub(crate) attempts: u32,
    pub(crate) last_status: Option<u16>,
    pub(crate) last_error: Option<&'a str>,
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

impl<'a> JobImage<'a> {
    /// Its row, unless the job is deleted.
    fn row(&self) -> Option<&RowImage<'a>> {
        match &self.state {
            StateImage::New { row, .. } | StateImage::Changed(row) => Some(row),
            StateImage::Deleted { .. } => None,
        }
    }

    pub(crate) fn job_id(&self) -> Option<JobId> {
        JobId::from_bytes(&self.id).ok()
    }

    /// The locations of its payloads; the first is at `at`. Moves `at` behind the last payload.
    fn locations(&self, at: &mut JournalLocation, has_sums: bool) -> JobLocations {
        let mut next = |len: u32| {
            let location = JournalLocation { len, ..*at };
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
        let sum_bytes = if has_sums { SUM_BYTES } else { 0 };
        let body = body_len.map(|len| next(len.saturating_add(sum_bytes)));
        JobLocations { input, output, pages, body }
    }
}

/// The locations of the payloads of a [`JobImage`].
#[derive(Debug, Default)]
pub(crate) struct JobLocations {
    pub(crate) input: Option<JournalLocation>,
    pub(crate) output: Option<JournalLocation>,
    /// By the index of the first chunk.
    pub(crate) pages: Vec<(u64, JournalLocation)>,
    /// The bytes that its webhook sends.
    pub(crate) body: Option<JournalLocation>,
}

impl<'a> BatchImage<'a> {
    /// Encodes the batch.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = postcard::to_allocvec(self).expect("an image is plain data");
        let rows = self.jobs.iter().filter_map(|job| Some((job.seq, job.row()?.extension)));
        let extensions: Vec<_> =
            rows.filter(|(_, extension)| *extension != RowExtension::default()).collect();
        if !extensions.is_empty() {
            bytes = postcard::to_extend(&extensions, bytes).expect("an image is plain data");
        }
        bytes
    }

    /// Adds the values behind the other content of a frame to the rows of its jobs. Both are in the
    /// order of the jobs.
    fn add_extensions(&mut self, extensions: &[(u64, RowExtension)]) {
        let mut jobs = self.jobs.iter_mut();
        for (seq, extension) in extensions {
            let Some(job) = jobs.find(|job| job.seq == *seq) else { return };
            if let StateImage::New { row, .. } | StateImage::Changed(row) = &mut job.state {
                row.extension = *extension;
            }
        }
    }

    /// Decodes a frame, with the locations of the jobs' payloads.
    ///
    /// # Errors
    /// Of kind [`InvalidData`](io::ErrorKind::InvalidData) when the frame cannot be decoded. Its
    /// checksum was right, so another program wrote it.
    pub(crate) fn read(frame: &'a Frame<'_>) -> io::Result<(Self, Vec<JobLocations>)> {
        Self::decode(frame.encoded_batch(), frame.payloads, frame.has_sums())
    }

    /// Decodes a frame with payloads at `payloads`, each followed by a checksum if `has_sums`.
    pub(crate) fn decode(
        encoded_batch: &'a [u8],
        payloads: JournalLocation,
        has_sums: bool,
    ) -> io::Result<(Self, Vec<JobLocations>)> {
        let other = |error| damaged(format!("a frame of another version: {error}"));
        let (mut image, rest): (Self, _) =
            postcard::take_from_bytes(encoded_batch).map_err(other)?;
        if !rest.is_empty() {
            image.add_extensions(
                &postcard::from_bytes::<Vec<(u64, RowExtension)>>(rest).map_err(other)?,
            );
        }
        let mut at = payloads;
        let locations = image.jobs.iter().map(|job| job.locations(&mut at, has_sums)).collect();
        if at.at != payloads.at + payloads.len {
            return Err(damaged("a frame's payloads have another length than it states"));
        }
        Ok((image, locations))
    }

    /// The locations of the jobs' payloads, which begin at `payloads`; each includes its checksum.
    pub(crate) fn locations(
        &self,
        payloads: JournalLocation,
    ) -> impl Iterator<Item = JobLocations> + use<'_, 'a> {
        let mut at = payloads;
        self.jobs.iter().map(move |job| job.locations(&mut at, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::segment::SegmentId;

    #[test]
    fn payloads_beyond_those_of_the_frame_are_refused() {
        let job = JobImage {
            seq: 1,
            id: [0; 19],
            endpoint: 1,
            state: StateImage::Deleted { job: false, output: false, chunks: false },
            idempotency: None,
            output: Some(10),
            clears_result: false,
            pages: vec![(0, u32::MAX)],
            delivery: None,
            has_body: false,
        };
        let image = BatchImage { jobs: vec![job], ..BatchImage::default() };
        let encoded_batch = image.encode();
        for len in [0, 9, 10, 11] {
            let payloads = JournalLocation { segment: SegmentId(1), at: 100, len };
            assert!(BatchImage::decode(&encoded_batch, payloads, true).is_err(), "{len}");
        }
    }
}
