//! The key of stored secrets, and its replacement while the host runs.

use async_trait::async_trait;

/// A store whose secrets are encrypted with a key that can be replaced.
#[async_trait]
pub trait SecretsStore: Send + Sync + std::fmt::Debug {
    /// Makes a new key, encrypts all stored secrets with it, and removes the old key. Jobs run
    /// meanwhile. If the host stops before the end, its next start completes the replacement; if
    /// the caller stops waiting, the replacement continues.
    ///
    /// # Errors
    /// [`RotateError`].
    async fn rotate_secrets_key(&self) -> Result<Rotated, RotateError>;
}

/// The secrets that were encrypted again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotated {
    /// Records of the catalog: templates, endpoints, handlers, credentials, volumes and keys.
    pub records: u64,
    /// Jobs whose `s3Config` was encrypted again.
    pub jobs: u64,
}

/// Why the key was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The key is being replaced.
    #[error("the key of stored secrets is being replaced already; try again when that is done")]
    Busy,
    /// Several hosts share the key. The text names the reason.
    #[error("{0}")]
    Shared(&'static str),
    /// The store is closing down, and completes a replacement that has begun at its next start.
    #[error("the store is closed")]
    Closed,
    /// The disk has no space. Nothing was changed.
    #[error("the disk has no space for the new key; nothing was changed")]
    DiskFull,
    /// The key file cannot be replaced. Nothing was changed.
    #[error("the key file cannot be replaced, and nothing was changed: {0}")]
    KeyFile(String),
    /// All secrets are encrypted with the new key, and the old key cannot be removed from the file.
    #[error(
        "all secrets are encrypted with the new key, and the old key could not be removed from the key \
         file: {0}. Remove all lines but the first, or restart the host to try again"
    )]
    OldKeyStays(String),
}
