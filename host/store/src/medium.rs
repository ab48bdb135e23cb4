//! The seam between the engine and the place where its batches become durable.
//!
//! The engine ([`state`](crate::state), [`commit`](crate::commit), [`store`](crate::store))
//! decides, and keeps every job that can change in memory. A medium has three parts, and knows no
//! rules about jobs:
//! * a [`BatchLog`](crate::commit::log::BatchLog), which makes each batch durable in the order of
//!   the batches; the writer thread calls it;
//! * a [`Medium`], which reads payloads back while the medium still has them where the batch put
//!   them; every thread calls it;
//! * one thread that answers the [requests](crate::state::requests::DbRequest) for everything else
//!   that is not in memory.
//!
//! There are three media: a journal in front of SQLite, [PostgreSQL](crate::postgres), and
//! [memory](crate::testing).

use std::fmt::Debug;
use std::io;

use bytes::Bytes;

/// The number of a part of a medium, in the order of the batches. The journal's parts are its
/// segments.
///
/// It grows with each use of a file and is never reused, so a location in an overwritten segment is
/// detected. 2^32 segments are some 10^17 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentId(pub(crate) u32);

/// The location of a payload in a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadLocation {
    pub(crate) segment: SegmentId,
    pub(crate) at: u32,
    pub(crate) len: u32,
}

/// Inputs and outputs of this size or more stay in the journal until their job is deleted; smaller
/// ones, and chunks, move to the database. SQLite writes 16 KiB at half the speed of the journal,
/// 64 KiB at a quarter.
const KEPT_BYTES_MIN: u32 = 16 << 10;

impl PayloadLocation {
    /// Whether an input or output here stays when its segment is checkpointed.
    pub(crate) fn is_kept(self) -> bool {
        self.len >= KEPT_BYTES_MIN
    }
}

/// The payloads of a medium that are where the batch put them. A medium that returns no locations
/// for its batches has none, and leaves everything here at its default.
///
/// Bytes that a job or delivery refers to are *held* by the index, so that the medium keeps them
/// where they are.
pub(crate) trait Medium: Debug + Send + Sync {
    /// The payload at a location; `None` when it has moved, or was deleted. Blocks for as long as a
    /// read of its bytes.
    ///
    /// # Errors
    /// Of kind [`InvalidData`](io::ErrorKind::InvalidData) when the bytes are not those that were
    /// written; after any other kind the store must end.
    fn read(&self, _: PayloadLocation) -> io::Result<Option<Bytes>> {
        Ok(None)
    }

    /// Protects the bytes at these locations until they are released.
    fn hold(&self, _: &mut dyn Iterator<Item = PayloadLocation>) {}

    /// Undoes a [`hold`](Self::hold).
    fn release(&self, _: &mut dyn Iterator<Item = PayloadLocation>) {}

    /// Bytes that the medium will still write for batches that are durable, at most.
    fn backlog_bytes(&self) -> u64 {
        0
    }

    /// Whether new work can be made durable now. Work that is already accepted waits until it can.
    fn is_available(&self) -> bool {
        true
    }

    /// The store has ended: no thread waits for the medium any more.
    fn close(&self) {}
}
