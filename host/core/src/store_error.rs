//! The refusals and failures of the store.

use crate::sharing::disk_space::Shortage;

/// Why the store did not carry out a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The endpoint was deleted during the call.
    #[error("the endpoint was deleted")]
    EndpointDeleted,
    /// A bound on jobs and their data is reached. The same call succeeds once there is room.
    #[error(transparent)]
    Full(#[from] StoreFull),
    /// The owner has as much as one owner may have. The same call succeeds once the owner has
    /// deleted something.
    #[error(transparent)]
    QuotaExceeded(#[from] OwnerQuota),
    /// The cursor of a list is not of this store, or its key has been replaced since.
    #[error(
        "`cursor` is not of this host, or was made before the key of stored secrets was replaced; \
         begin again with the first page"
    )]
    UnknownCursor,
    /// The store is closing down.
    #[error("the store is closed")]
    Closed,
    /// The database that keeps the jobs does not answer at present. The same call succeeds once it
    /// does.
    #[error("the database that keeps the jobs does not answer; try again shortly")]
    Unavailable,
    /// A payload on the disk is damaged. The store continues to work.
    #[error("{0}")]
    Damaged(String),
}

/// The bound on jobs and their data that is reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFull {
    /// The endpoint's queue is at its bound.
    #[error("the queue is full: {limit} jobs wait on this endpoint")]
    Queue {
        /// The bound, in jobs.
        limit: usize,
    },
    /// The waiting jobs of all endpoints are at their bound in memory.
    #[error("the host's queues are full: {limit} jobs wait, as many as the host has memory for")]
    HostQueue {
        /// The bound, in jobs.
        limit: usize,
    },
    /// The waiting jobs of the owner have reached the owner's share of that bound.
    #[error(
        "the queues of this owner are full: {waiting} jobs of all its endpoints wait, as many as one owner \
         may have beside the others now"
    )]
    OwnerQueue {
        /// Waiting jobs of the owner.
        waiting: usize,
    },
    /// The jobs of all endpoints, in any status, are at their bound in memory.
    #[error(
        "the host has {limit} jobs in memory, as many as there is room for; ended jobs leave it some \
         minutes after their end"
    )]
    HostJobs {
        /// The bound, in jobs.
        limit: usize,
    },
    /// The jobs of the owner, in any status, have reached the owner's share of that bound.
    #[error(
        "the host has {jobs} jobs of this owner in memory, as many as one owner may have beside the \
         others now; ended jobs leave it some minutes after their end"
    )]
    OwnerJobs {
        /// Jobs of the owner.
        jobs: usize,
    },
    /// The inputs of the endpoint's waiting jobs have reached their bound on disk.
    #[error(
        "the queue is full: the inputs that wait on this endpoint would take more than {limit_mib} MiB"
    )]
    WaitingBytes {
        /// The bound, in MiB.
        limit_mib: u64,
    },
    /// The results that the endpoint keeps have reached their bound on disk.
    #[error(
        "the results of this endpoint take {limit_mib} MiB, the most that they may take; results are \
         deleted when their retention is over"
    )]
    ResultBytes {
        /// The bound, in MiB.
        limit_mib: u64,
    },
    /// The webhooks of all owners are at their bound in memory.
    #[error(
        "the host is full: the different webhook URLs and tags of all jobs and the webhooks that wait to be sent \
         would take more than {limit_mib} MiB of memory; jobs without a webhook and tags are accepted"
    )]
    HostWebhooks {
        /// The bound, in MiB.
        limit_mib: u64,
    },
    /// The webhooks of the owner have reached the owner's share of that bound.
    #[error(
        "the different webhook URLs and tags of this owner's jobs and its webhooks that wait to be sent take \
         {held_mib} MiB of the host's memory, as much as one owner may have beside the others now; a URL, \
         or tags, that many jobs have count once, and jobs without a webhook and tags are accepted"
    )]
    OwnerWebhooks {
        /// MiB that the owner's webhooks take.
        held_mib: u64,
    },
    /// The data of the owner has reached the owner's share of the disk.
    #[error(
        "this owner's jobs, results, waiting webhooks, files and handlers take {held_mib} MiB of the \
         host's disk, as much as one owner may have beside the others now; delete files or handlers, \
         or wait until results are deleted when their retention is over"
    )]
    OwnerDisk {
        /// MiB that the owner's data takes.
        held_mib: u64,
    },
    /// The disk has no room for new work.
    #[error("{0}; it takes no new work until there is room")]
    Disk(Shortage),
}

/// The bound on the objects of one owner that a change would exceed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnerQuota {
    /// The change would give its owner more of the catalog than one owner may have.
    #[error(
        "the owner would have {asked} {unit}, and may have {max} (`serve --{option}`); delete objects that are \
         not needed any more"
    )]
    Records {
        /// The amount that the owner would have.
        asked: u64,
        /// The bound.
        max: u64,
        /// The unit of both numbers.
        unit: &'static str,
        /// The option that sets the bound.
        option: &'static str,
    },
    /// A further component would exceed its owner's share of the disk.
    #[error(
        "this handler takes {more_mib} MiB of the host's disk with its compiled file, and the owner's jobs, \
         results, waiting webhooks, files and handlers take {held_mib} MiB; together they exceed the \
         owner's share of the disk; delete handlers or files that are not needed any more"
    )]
    Components {
        /// MiB of the component's files.
        more_mib: u64,
        /// MiB that the owner's data takes.
        held_mib: u64,
    },
}
