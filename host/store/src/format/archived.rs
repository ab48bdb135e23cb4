//! The mark of an archived job in the tables: it is set when the job leaves memory, and cleared
//! when it returns.

use gristmill_core::id::OwnerId;
use gristmill_core::job::tags::Tags;

use crate::format::EndpointKey;

/// The parts of a job that its mark and the sums of archived jobs need.
#[derive(Debug, Clone)]
pub(crate) struct ArchivedJob {
    /// The number of its rows.
    pub(crate) seq: u64,
    pub(crate) endpoint: EndpointKey,
    pub(crate) owner: OwnerId,
    /// Bytes of its results and tags, and of its input if it can be retried.
    pub(crate) kept: u64,
    /// When it was submitted, in milliseconds since the Unix epoch.
    pub(crate) created_at: u64,
    pub(crate) tags: Option<Tags>,
    /// When it is deleted, in milliseconds since the Unix epoch.
    pub(crate) purge_at: u64,
    /// The chunks of its stream that a client has read; `None` without a reader. Only the mark
    /// needs it.
    pub(crate) delivered: Option<u64>,
}

/// The archived jobs of an owner on an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchivedSum {
    pub(crate) endpoint: EndpointKey,
    pub(crate) owner: OwnerId,
    pub(crate) jobs: u64,
    /// Their bytes, as [`ArchivedJob::kept`] counts them.
    pub(crate) kept: u64,
}
