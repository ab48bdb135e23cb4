//! What callers ask of the store's threads: of the writer what goes into the journal, of the other
//! what is in the database.

use gristmill_core::backup::{BackupError, BackupFile};
use gristmill_core::delivery::{Delivery, DeliveryId};
use gristmill_core::id::JobId;
use gristmill_core::payload::Json;
use gristmill_core::record::ChunkPage;
use gristmill_core::store::StoreError;
use gristmill_core::usage::{Bill, UsageQuery, UsageRow};
use tokio::sync::oneshot;

use crate::chunks::Query;
use crate::entry::{Ack, EndpointKey};
use crate::payloads::{Found, Kind, Payload};
use crate::slab::JobKey;

/// Something to write, in the order in which it was decided.
#[derive(Debug)]
pub(crate) enum Write {
    /// The newest state of a job.
    Job(JobKey),
    /// Nothing; resolves when all before it is on disk and visible.
    Barrier(Ack),
    /// A delivery after an attempt.
    Delivery(Box<Delivery>, usize, Ack),
    /// An attempt that left no result, with the bytes that this occupies.
    Bill(Box<Bill>, usize),
    /// Remove the row of an endpoint whose jobs are all removed.
    Forget(EndpointKey, Ack),
    /// Makes the next transaction fail.
    #[cfg(test)]
    Break,
    /// Holds the writer until the sender is dropped.
    #[cfg(test)]
    Hold(std::sync::mpsc::Receiver<()>),
}

/// A row of the catalog to write, or to remove when it has no body. The body holds secrets.
pub(crate) struct CatalogRow {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) body: Option<String>,
}

impl std::fmt::Debug for CatalogRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CatalogRow({} {})", self.kind, self.name)
    }
}

/// Something that only the database has, or takes. Readers look at what is pending and at the
/// journal first.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Payloads of jobs, by row.
    Payloads { seqs: Vec<u64>, kind: Kind, answer: oneshot::Sender<Vec<Found<Payload>>> },
    /// Chunks of a job's rows.
    Chunks { seq: u64, query: Query, answer: oneshot::Sender<Result<ChunkPage, String>> },
    /// What a delivery sends.
    DeliveryBody { id: DeliveryId, answer: oneshot::Sender<Found<Json>> },
    /// The bodies of all catalog rows.
    Catalog { answer: oneshot::Sender<Vec<String>> },
    /// Changes of the catalog, as one. They are on stable storage when it resolves with `Ok`.
    WriteCatalog(Vec<CatalogRow>, oneshot::Sender<Result<(), StoreError>>),
    /// What was used.
    Usage { query: UsageQuery, answer: oneshot::Sender<Vec<UsageRow>> },
    /// Take over what was used: an hour is over.
    StoreUsage,
    /// The files of a backup.
    Backup { with_secrets_key: bool, answer: oneshot::Sender<Result<Vec<BackupFile>, BackupError>> },
    /// How many rows were written since the file was opened.
    #[cfg(test)]
    RowsWritten { answer: oneshot::Sender<u64> },
}

/// Which chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkQuestion {
    pub(crate) id: JobId,
    pub(crate) from: u64,
    pub(crate) bytes_max: usize,
    pub(crate) count_max: usize,
}
