//! A segment as it was at one instant, read from its front to its end.

use std::io::{self, Read};
use std::sync::Arc;

use crate::journal::segment::SegmentFile;

/// Reads a segment up to an end. While this exists the file is not reused: the journal takes only
/// files without other readers.
#[derive(Debug)]
pub(crate) struct SegmentCopy {
    file: Arc<SegmentFile>,
    at: u64,
    end: u64,
}

impl SegmentCopy {
    pub(super) fn new(file: Arc<SegmentFile>, end: u64) -> Self {
        Self { file, at: 0, end }
    }

    pub(crate) fn name(&self) -> String {
        self.file.name()
    }

    pub(crate) fn size(&self) -> u64 {
        self.end
    }
}

impl Read for SegmentCopy {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(into.len());
        let into = into.get_mut(..left).unwrap_or_default();
        let count = self.file.read_some(into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
