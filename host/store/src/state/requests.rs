//! Requests to the store's threads: writes for the writer thread, and reads and writes for the
//! database's thread.

#[cfg(test)]
use std::sync::mpsc::{Receiver, Sender};

use std::sync::Arc;

use gristmill_core::access::secrets::{RotateError, Rotated};
use gristmill_core::backup::{BackupError, BackupFile};
use gristmill_core::billing::usage::{UsageQuery, UsageRow};
use gristmill_core::id::{EndpointId, JobActionId, JobId};
use gristmill_core::job::action::JobAction;
use gristmill_core::job::filter::JobSearch;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::ChunkPage;
use gristmill_core::job::retention::HistoryExcess;
use gristmill_core::store::StoreError;
use gristmill_core::time::Timestamp;
use gristmill_core::webhook::delivery::DeliveryId;
use tokio::sync::oneshot;

use crate::format::CatalogRow;
use crate::format::pages::Query;
use crate::format::payload::{Found, Kind, Payload};
use crate::medium::SegmentId;
use crate::state::found_row::FoundRow;
use crate::state::hit::{Hit, SearchedPage};

/// A request for data that only the database has, or stores. Readers check pending changes and the
/// journal first.
#[derive(Debug)]
pub(crate) enum DbRequest {
    /// Payloads of jobs, by row.
    Payloads { seqs: Vec<u64>, kind: Kind, answer: oneshot::Sender<Vec<Found<Payload>>> },
    /// Chunks of a job's rows.
    Chunks { seq: u64, query: Query, answer: oneshot::Sender<Result<ChunkPage, String>> },
    /// Where the store has a job.
    Locate { id: JobId, answer: oneshot::Sender<Result<Located, String>> },
    /// Puts an archived job back into memory, unless its endpoint is being deleted.
    Load { id: JobId, answer: oneshot::Sender<Result<(), StoreError>> },
    /// Continues a search that has `found` with the jobs before this number.
    Search {
        search: Arc<JobSearch>,
        before: u64,
        found: Vec<Hit>,
        answer: oneshot::Sender<SearchedPage>,
    },
    /// Deletes some archived jobs whose time is over. Answers with the time of the next one.
    ExpireArchived { now: Timestamp, count_max: usize, answer: oneshot::Sender<Timestamp> },
    /// Deletes some of the oldest archived jobs of an endpoint. Answers with their number.
    TrimArchived { endpoint: EndpointId, excess: HistoryExcess, answer: oneshot::Sender<usize> },
    /// Deletes those of the jobs that are archived and belong to the endpoint.
    DeleteArchived {
        endpoint: EndpointId,
        ids: Vec<JobId>,
        answer: oneshot::Sender<Result<DeletedArchived, StoreError>>,
    },
    /// Adds an action on many jobs, or replaces the one with its id. It is on stable storage when
    /// it resolves with `Ok`.
    PutAction { action: Box<JobAction>, answer: oneshot::Sender<Result<(), StoreError>> },
    /// Deletes an action on many jobs.
    DeleteAction { id: JobActionId, answer: oneshot::Sender<Result<(), StoreError>> },
    /// All actions on many jobs.
    Actions { answer: oneshot::Sender<Vec<JobAction>> },
    /// The bytes that a delivery sends.
    DeliveryBody { id: DeliveryId, answer: oneshot::Sender<Found<Json>> },
    /// The bodies of all catalog rows.
    Catalog { answer: oneshot::Sender<Vec<String>> },
    /// Changes of the catalog, as one transaction. They are on stable storage when it resolves with
    /// `Ok`.
    WriteCatalog(Vec<CatalogRow>, oneshot::Sender<Result<(), StoreError>>),
    /// Reads the usage. A database reads it in parts; `found` has the rows of the earlier ones.
    Usage {
        query: UsageQuery,
        found: Vec<UsageRow>,
        answer: oneshot::Sender<Result<Vec<UsageRow>, StoreError>>,
    },
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

/// The result of a deletion of archived jobs.
#[derive(Debug)]
pub(crate) struct DeletedArchived {
    /// Jobs that were deleted.
    pub(crate) deleted: u64,
    /// Jobs that memory has.
    pub(crate) in_memory: Vec<JobId>,
}

/// Where the store has a job.
#[derive(Debug)]
pub(crate) enum Located {
    Archived(Box<FoundRow>),
    /// It may leave memory before the caller looks there.
    InMemory,
    /// There is no such job.
    Nowhere,
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
    pub(crate) from: u64,
    pub(crate) bytes_max: usize,
    pub(crate) count_max: usize,
}
