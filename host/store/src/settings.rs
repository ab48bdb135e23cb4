//! The settings that an operator can change.

use std::path::PathBuf;
use std::sync::Arc;

use gristmill_core::job::loss::LossBounds;
use gristmill_core::limits::QUEUE_JOBS_MAX;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;

use crate::journal::Bounds;
use crate::state::disk_usage::EndpointMax;
use crate::state::owners::{JobNumbers, OwnersMax};

/// Called with the reason when the store must end. Runs on the writer thread.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// The store's bounds. [`Settings::default`] suits a server.
#[derive(Clone)]
pub struct Settings {
    /// Most waiting jobs of one endpoint. Further submissions return
    /// [`Queue`](gristmill_core::store::StoreFull::Queue).
    pub queue_jobs_max: usize,
    /// Most waiting jobs of all endpoints together; each takes some 200 bytes of memory. Further
    /// submissions return [`HostQueue`](gristmill_core::store::StoreFull::HostQueue), and at an
    /// owner's share of it [`OwnerQueue`](gristmill_core::store::StoreFull::OwnerQueue).
    pub host_waiting_jobs_max: usize,
    /// Most jobs of all endpoints together in memory, in any status; an ended job takes some 512
    /// bytes until it is archived. Further submissions return
    /// [`HostJobs`](gristmill_core::store::StoreFull::HostJobs), and at an owner's share of it
    /// [`OwnerJobs`](gristmill_core::store::StoreFull::OwnerJobs).
    pub host_jobs_max: usize,
    /// Most bytes of memory for the webhooks of all endpoints together: the URLs of jobs, and the
    /// pending deliveries. Further submissions with a webhook return
    /// [`HostWebhooks`](gristmill_core::store::StoreFull::HostWebhooks), and at an owner's share of
    /// it [`OwnerWebhooks`](gristmill_core::store::StoreFull::OwnerWebhooks).
    pub host_webhook_bytes_max: u64,
    /// Most bytes of waiting inputs of one endpoint. Further submissions return
    /// [`WaitingBytes`](gristmill_core::store::StoreFull::WaitingBytes).
    pub waiting_bytes_max: u64,
    /// Most bytes of results that one endpoint keeps. Further submissions return
    /// [`ResultBytes`](gristmill_core::store::StoreFull::ResultBytes), and a job that
    /// would add more is FAILED.
    pub result_bytes_max: u64,
    /// Whether the disk has room, and the bytes of each owner on it. Without room submissions
    /// return [`Disk`](gristmill_core::store::StoreFull::Disk), and at an owner's share
    /// [`OwnerDisk`](gristmill_core::store::StoreFull::OwnerDisk). The store records here
    /// when it waits for space.
    pub disk_space: Arc<DiskSpaceGauge>,
    /// Most bytes of small operations that wait to be written, and most bytes of large ones, which
    /// have a payload of more than 64 KiB. At the bound `submit`, `finish` and `append_chunks`
    /// wait. An owner has a share of the bytes of large operations, and an endpoint a quarter; a
    /// payload larger than that counts as a quarter.
    pub write_buffer_bytes: usize,
    /// Most jobs written by one transaction.
    pub batch_jobs_max: usize,
    /// Bytes of payload after which a transaction takes no further job.
    pub batch_bytes_max: usize,
    /// Bytes of the journal that may wait for a checkpoint. Jobs that are created and deleted
    /// within this amount never reach the database; a start reads at most twice as much.
    pub journal_bytes: u64,
    /// Bytes of one file of the journal; 512 B to 1 GiB. At least one file waits for a
    /// checkpoint. A larger batch gets a separate file.
    pub segment_bytes: u32,
    /// Bytes of inputs and outputs that are cached for readers.
    pub payload_cache_bytes: u64,
    /// Bytes of the newest chunks that are cached for readers of streams.
    pub chunk_cache_bytes: u64,
    /// Milliseconds from the end of a job until it is archived: its row stays in the tables, and it
    /// takes no memory any more. A job whose payloads or changes are in the journal stays in memory
    /// for longer, and a job that is deleted within this time is not archived.
    pub archive_after_ms: u64,
    /// The file with the key that secrets are encrypted with; created together with a new store.
    /// `None`: `secrets.key` in the data directory.
    pub secrets_key: Option<PathBuf>,
    /// The largest difference, in milliseconds, between the clock at a start and the newest time
    /// that the store has recorded. It applies if jobs that have not ended would be deleted, or if
    /// the clock is behind. Beyond it [`Store::open`](crate::Store::open) fails. In a database that
    /// hosts share, also the largest difference from the clock of the database. `None`: no limit.
    pub clock_jump_max_ms: Option<u64>,
    /// How often a job may lose its host.
    pub loss_bounds: LossBounds,
    /// Whether the machine's clock is known to be right. Then
    /// [`Store::take_over`](crate::Store::take_over) compares it with the clock of the database
    /// alone, and not with the newest time that a host has recorded.
    pub is_clock_synchronised: bool,
    /// Called when a commit fails. The default logs the reason and ends the process, since memory
    /// then has changes that are not on disk. When the hook returns, the store refuses everything,
    /// and no uncommitted operation ever returns `Ok`.
    pub on_fatal: OnFatal,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue_jobs_max: QUEUE_JOBS_MAX,
            host_waiting_jobs_max: 4 * QUEUE_JOBS_MAX,
            host_jobs_max: 8 * QUEUE_JOBS_MAX,
            host_webhook_bytes_max: 512 << 20,
            waiting_bytes_max: 16 << 30,
            result_bytes_max: 64 << 30,
            disk_space: Arc::default(),
            write_buffer_bytes: 64 << 20,
            batch_jobs_max: 1_024,
            batch_bytes_max: 4 << 20,
            journal_bytes: 1 << 30,
            segment_bytes: 64 << 20,
            payload_cache_bytes: 64 << 20,
            chunk_cache_bytes: 32 << 20,
            archive_after_ms: 5 * 60_000,
            secrets_key: None,
            clock_jump_max_ms: None,
            loss_bounds: LossBounds::default(),
            is_clock_synchronised: false,
            on_fatal: Arc::new(|reason| {
                tracing::error!(reason, "the store failed, the process ends now: {reason}");
                std::process::abort();
            }),
        }
    }
}

impl Settings {
    /// The default, with a journal of this many bytes in segments of a suitable size.
    pub fn with_journal(journal_bytes: u64) -> Self {
        let usual = Self::default();
        let quarter = u32::try_from(journal_bytes / 4).unwrap_or(u32::MAX);
        Self { journal_bytes, segment_bytes: usual.segment_bytes.min(quarter), ..usual }
    }

    /// The bounds of all endpoints together.
    pub(crate) fn owners_max(&self) -> OwnersMax {
        OwnersMax {
            jobs: JobNumbers { waiting: self.host_waiting_jobs_max, in_memory: self.host_jobs_max },
            webhook_bytes: self.host_webhook_bytes_max,
        }
    }

    /// The bounds of one endpoint.
    pub(crate) fn endpoint_max(&self) -> EndpointMax {
        EndpointMax {
            jobs: self.queue_jobs_max,
            waiting_bytes: self.waiting_bytes_max,
            kept_bytes: self.result_bytes_max,
        }
    }

    /// The bounds of the journal. A file of it must have room for its header.
    pub(crate) fn journal_bounds(&self) -> Bounds {
        let segment_bytes = self.segment_bytes.clamp(512, 1 << 30);
        let uncheckpointed_max = self.journal_bytes / u64::from(segment_bytes);
        let uncheckpointed_max = usize::try_from(uncheckpointed_max).unwrap_or(usize::MAX).max(1);
        Bounds { segment_bytes, uncheckpointed_max }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("queue_jobs_max", &self.queue_jobs_max)
            .field("host_waiting_jobs_max", &self.host_waiting_jobs_max)
            .field("host_jobs_max", &self.host_jobs_max)
            .field("host_webhook_bytes_max", &self.host_webhook_bytes_max)
            .field("waiting_bytes_max", &self.waiting_bytes_max)
            .field("result_bytes_max", &self.result_bytes_max)
            .field("write_buffer_bytes", &self.write_buffer_bytes)
            .field("batch_jobs_max", &self.batch_jobs_max)
            .field("batch_bytes_max", &self.batch_bytes_max)
            .field("journal_bytes", &self.journal_bytes)
            .field("segment_bytes", &self.segment_bytes)
            .field("payload_cache_bytes", &self.payload_cache_bytes)
            .field("chunk_cache_bytes", &self.chunk_cache_bytes)
            .field("archive_after_ms", &self.archive_after_ms)
            .field("secrets_key", &self.secrets_key)
            .field("clock_jump_max_ms", &self.clock_jump_max_ms)
            .field("loss_bounds", &self.loss_bounds)
            .field("is_clock_synchronised", &self.is_clock_synchronised)
            .finish_non_exhaustive()
    }
}
