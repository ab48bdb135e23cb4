//! Writes each batch as one frame of the journal, with one sync.

use std::sync::Arc;

use gristmill_core::sharing::disk_space::DiskSpaceGauge;

use crate::commit::encode::encode;
use crate::commit::log::{BatchLog, WriteError, Written};
use crate::journal::{AppendError, Appender, Journal};
use crate::medium::SegmentId;
use crate::seal::Seal;
use crate::state::batch::Batch;

/// The end of the journal.
#[derive(Debug)]
pub(crate) struct JournalLog {
    journal: Arc<Journal>,
    appender: Appender,
    seal: Arc<Seal>,
    disk_space: Arc<DiskSpaceGauge>,
}

impl JournalLog {
    /// Continues a journal that ended at `end` in its newest segment.
    pub(crate) fn new(
        journal: Arc<Journal>,
        end: u32,
        seal: Arc<Seal>,
        disk_space: Arc<DiskSpaceGauge>,
    ) -> Self {
        let appender = Appender::new(journal.clone(), end);
        Self { journal, appender, seal, disk_space }
    }
}

impl BatchLog for JournalLog {
    fn wait_for_room(&self) {
        self.journal.wait_for_room();
    }

    fn write(&mut self, batch: &Batch) -> Result<Written, WriteError> {
        let (image, payloads) = encode(batch, &self.seal);
        let encoded_batch = image.encode();
        let appended = self.appender.append(&encoded_batch, &payloads)?;
        let locations: Vec<_> = image.locations(appended.payloads).collect();
        let segment = appended.payloads.segment;
        // The checkpoint of the segment will write so many bytes more, at most.
        let owed = image.owed_bytes(encoded_batch.len(), &locations);
        self.journal.owe(segment, owed);
        self.disk_space.owe(owed);
        Ok(Written { segment, locations, has_ended_segment: appended.is_first })
    }

    fn begin_segment(&mut self) -> Result<SegmentId, WriteError> {
        Ok(self.appender.begin_segment()?)
    }
}

impl From<AppendError> for WriteError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::NoSpace(error) => Self::NoSpace(error),
            AppendError::Fatal(error) => Self::Fatal(error.into()),
        }
    }
}
