//! What an operator may move.

use std::path::PathBuf;
use std::sync::Arc;

use gristmill_core::limits::QUEUE_JOBS_MAX;

/// Called with the reason when the store cannot go on. Runs on the writer thread.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// The store's bounds. [`Settings::default`] suits a server.
#[derive(Clone)]
pub struct Settings {
    /// Most jobs that wait on one endpoint. Beyond it a submission answers
    /// [`QueueFull`](gristmill_core::store::StoreError::QueueFull).
    pub queue_jobs_max: usize,
    /// Most bytes of payloads on their way to the disk. At the bound `submit`, `finish` and
    /// `append_chunks` wait. A payload larger than this goes alone.
    pub write_buffer_bytes: usize,
    /// Most jobs written by one transaction.
    pub batch_jobs_max: usize,
    /// Bytes of payload after which a transaction takes no further job.
    pub batch_bytes_max: usize,
    /// Bytes of inputs and outputs kept in memory for those who ask next.
    pub payload_cache_bytes: u64,
    /// Bytes of newest chunks kept in memory for those who follow a stream.
    pub chunk_cache_bytes: u64,
    /// The file with the key that secrets are encrypted with; made together with a new store.
    /// `None`: `secrets.key` in the data directory.
    pub secrets_key: Option<PathBuf>,
    /// What to do when a commit fails. The default logs the reason and ends the process: what is
    /// on disk is true then, and what is in memory may not be. When the hook returns, the store
    /// refuses everything, and no operation that was not committed is ever answered with `Ok`.
    pub on_fatal: OnFatal,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue_jobs_max: QUEUE_JOBS_MAX,
            write_buffer_bytes: 64 << 20,
            batch_jobs_max: 1_024,
            batch_bytes_max: 4 << 20,
            payload_cache_bytes: 64 << 20,
            chunk_cache_bytes: 32 << 20,
            secrets_key: None,
            on_fatal: Arc::new(|reason| {
                tracing::error!(reason, "the store failed, the process ends now: {reason}");
                std::process::abort();
            }),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("queue_jobs_max", &self.queue_jobs_max)
            .field("write_buffer_bytes", &self.write_buffer_bytes)
            .field("batch_jobs_max", &self.batch_jobs_max)
            .field("batch_bytes_max", &self.batch_bytes_max)
            .field("payload_cache_bytes", &self.payload_cache_bytes)
            .field("chunk_cache_bytes", &self.chunk_cache_bytes)
            .field("secrets_key", &self.secrets_key)
            .finish_non_exhaustive()
    }
}
