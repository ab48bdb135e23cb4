//! Requests to the store's threads: writes for the writer thread, and reads and writes for the
//! database's thread.

#[cfg(test)]
use std::sync::mpsc::{Receiver, Sender};

use gristmill_core::backup::{BackupError, BackupFile};
use gristmill_core::delivery::DeliveryId;
use gristmill_core::id::JobId;
use gristmill_core::payload::Json;
use gristmill_core::record::ChunkPage;
use gristmill_core::secrets::{RotateError, Rotated};
use gristmill_core::store::StoreError;
use gristmill_core::usage::{UsageQuery, UsageRow};
use tokio::sync::oneshot;

use crate::format::CatalogRow;
use crate::format::pages::Query;
use crate::format::payload::{Found, Kind, Payload};
use crate::journal::segment::SegmentId;

/// A request for data that only the database has, or stores. Readers check pending changes and the
/// journal first.
#[derive(Debug)]
pub(crate) enum DbRequest {
    /// Payloads of jobs, by row.
    Payloads { seqs: Vec<u64>, kind: Kind, answer: oneshot::Sender<Vec<Found<Payload>>> },
    /// Chunks of a job's rows.
    Chunks { seq: u64, query: Query, answer: oneshot::Sender<Result<ChunkPage, String>> },
    /// The bytes that a delivery sends.
    DeliveryBody { id: DeliveryId, answer: oneshot::Sender<Found<Json>> },
    /// The bodies of all catalog rows.
    Catalog { answer: oneshot::Sender<Vec<String>> },
    /// Changes of the catalog, as one transaction. They are on stable storage when it resolves with
    /// `Ok`.
    WriteCatalog(Vec<CatalogRow>, oneshot::Sender<Result<(), StoreError>>),
    /// Reads the usage.
    Usage { query: UsageQuery, answer: oneshot::Sender<Vec<UsageRow>> },
    /// Writes the usage to the tables, because an hour is over.
    StoreUsage,
    /// Opens the files of a backup.
    Backup { with_secrets_key: bool, answer: oneshot::Sender<Result<Vec<BackupFile>, BackupError>> },
    /// Replaces the key of stored secrets.
    Rotate { answer: oneshot::Sender<Result<Rotated, RotateError>> },
    /// Sends the name of each step of a rotation before it begins, and waits for an answer.
    #[cfg(test)]
    WatchRotation { steps: Sender<String>, go: Receiver<()> },
    /// Number of rows that the tables hold of jobs and their payloads.
    #[cfg(test)]
    JobRows { answer: oneshot::Sender<u64> },
}

/// A request of the database's thread to the writer: begin a new segment of the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum NewSegment {
    /// There is no request.
    #[default]
    No,
    /// The writer has not seen the request yet.
    Asked,
    /// The writer begins the segment.
    Beginning,
    /// All changes that were encoded before the request are in earlier segments than this one.
    Begun(SegmentId),
}

/// Selects chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkRequest {
    pub(crate) id: JobId,
    pub(crate) from: u64,
    pub(crate) bytes_max: usize,
    pub(crate) count_max: usize,
}
