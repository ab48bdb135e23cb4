//! The files of a backup: their state at one instant, the same for all of them.
//!
//! A backup is a tar archive of these files, with [`CHECKSUMS`] at its end; without that file it is
//! incomplete. [`is_name`] lists the permitted names.

use std::io::Read;

use async_trait::async_trait;

/// The last file of a backup: a line for each other file with its SHA-256 and its name, in the
/// format of `sha256sum`.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// The database. Every backup has it.
pub const DATABASE: &str = "store.db";

/// An empty file in a data directory that a restore or a repair has not completed. No host starts
/// on such a directory.
pub const UNFINISHED: &str = ".unfinished";

/// An empty file in a data directory whose jobs an import has moved to a database. No host starts
/// on such a directory, since it would run the same jobs.
pub const IMPORTED: &str = ".imported";

/// The key of the stored secrets. A backup has it only on request.
pub const SECRETS_KEY: &str = "secrets.key";

/// The directory of the journal's files.
pub const JOURNAL: &str = "journal";

/// The directory of uploaded components.
pub const COMPONENTS: &str = "components";

/// The SHA-256 in the name of a component, in hexadecimal digits; `None` for another file.
pub fn component_digest(name: &str) -> Option<&str> {
    name.strip_prefix(COMPONENTS)?.get(1..65)
}

/// Whether a file of a backup may have this name. Unpacking a backup writes no other files.
pub fn is_name(name: &str) -> bool {
    let is_plain = |text: &str, ending: &str| {
        let stem = text.strip_suffix(ending).unwrap_or_default();
        !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    match name.split_once('/') {
        None => [DATABASE, SECRETS_KEY, CHECKSUMS].contains(&name),
        Some((JOURNAL, file)) => is_plain(file, ".seg"),
        Some((COMPONENTS, file)) => is_plain(file, ".wasm"),
        Some(_) => false,
    }
}

/// A file of a backup.
pub struct BackupFile {
    /// Its name in the archive, and below the data directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its content. Reading fails if the content has changed meanwhile.
    pub content: Box<dyn Read + Send>,
}

impl std::fmt::Debug for BackupFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BackupFile({}, {} bytes)", self.name, self.bytes)
    }
}

/// A component that can be copied while it is used.
#[async_trait]
pub trait BackupSource: Send + Sync + std::fmt::Debug {
    /// The files as they are at this instant, with everything that was acknowledged before the
    /// call. Reading them delays no other caller, but until the last of them is dropped the disk
    /// must hold all changes that are made meanwhile.
    ///
    /// # Errors
    /// [`BackupError`].
    async fn backup(&self, with_secrets_key: bool) -> Result<Vec<BackupFile>, BackupError>;
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Another one is being made.
    #[error("another backup is being made; try again when it is done")]
    Busy,
    /// The backup would need two keys, and would have none.
    #[error(
        "the key of stored secrets is being replaced; try again when that is done, or include the key \
         (`--with-secrets-key`)"
    )]
    Rotating,
    /// The data is not in files of this host. The text names what to use instead.
    #[error("{0}")]
    Elsewhere(&'static str),
    /// The store is closing down.
    #[error("the store is closed")]
    Closed,
    /// A file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        let digest = "0f".repeat(32);
        for name in ["store.db", "secrets.key", "SHA256SUMS", "journal/000012.seg"] {
            assert!(is_name(name), "{name}");
        }
        assert!(is_name(&format!("components/{digest}.wasm")));
        let others = [
            "",
            "/",
            "store.db/",
            "/store.db",
            "../store.db",
            "journal/",
            "journal/.seg",
            "journal/../1.seg",
            "journal/a/1.seg",
            "components/x.wasm",
            "components/..wasm",
            "admin.key",
            "artifacts/a/b.cwasm",
        ];
        for name in others {
            assert!(!is_name(name), "{name}");
        }
    }
}
