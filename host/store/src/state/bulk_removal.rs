//! Removals of many jobs, as they wait to be [carried out](crate::state::remove_slice).

use tokio::sync::oneshot;

use crate::format::EndpointKey;

/// A removal in progress.
#[derive(Debug)]
pub(crate) enum BulkRemoval {
    /// Removes the waiting jobs of an endpoint that were queued before `until`.
    Purge { endpoint: EndpointKey, until: u64, removed: u64, answer: oneshot::Sender<Purged> },
    /// Removes the jobs of an endpoint with a number less than `before`, then the endpoint.
    Forget { endpoint: EndpointKey, before: u64 },
}

/// Number of jobs that a purge removed, and a receiver that resolves when they are deleted on disk
/// too.
#[derive(Debug)]
pub(crate) struct Purged {
    pub(crate) removed: u64,
    pub(crate) on_disk: oneshot::Receiver<()>,
}
