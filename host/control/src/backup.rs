//! Backups: all data of the running host at one instant, as one archive.
//!
//! **Bounds.** One backup at a time.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use data_encoding::HEXLOWER;
use gristmill_core::backup::{BackupError, BackupFile, BackupSource, CHECKSUMS, component_digest};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::OwnedRwLockWriteGuard;
use tokio::time::timeout;

use crate::deployed::Deployed;
use crate::error::ControlError;

/// How long a call waits for the end of another backup: an abandoned backup ends soon.
const TURN_WAIT: Duration = Duration::from_secs(5);

/// The service for backups.
#[derive(Debug, Clone)]
pub struct Backups {
    source: Arc<dyn BackupSource>,
    deployed: Arc<Deployed>,
}

/// All data of the host at one instant. While it exists there is no other backup, and no component
/// is deleted.
#[derive(Debug)]
pub struct Backup {
    files: Vec<BackupFile>,
    deployed: Arc<Deployed>,
    /// `None` once the backup ends.
    turn: Option<OwnedRwLockWriteGuard<()>>,
}

impl Drop for Backup {
    /// Deletes the components that lost their last name meanwhile.
    fn drop(&mut self) {
        self.files.clear();
        self.turn = None;
        // Without a runtime the host is ending: its next start deletes them.
        let Ok(runtime) = Handle::try_current() else { return };
        let deployed = self.deployed.clone();
        runtime.spawn(async move { deployed.remove_unused_components().await });
    }
}

impl Backups {
    pub(crate) fn new(source: Arc<dyn BackupSource>, deployed: Arc<Deployed>) -> Self {
        Self { source, deployed }
    }

    /// The data at this instant. It contains the key of stored secrets only on request.
    ///
    /// # Errors
    /// [`ControlError::Backup`].
    pub async fn create(&self, with_secrets_key: bool) -> Result<Backup, ControlError> {
        let turn = self.deployed.backup_turn.clone();
        // Components may lose their last name while a backup waits, begins or is sent.
        let mut backup = Backup { files: vec![], deployed: self.deployed.clone(), turn: None };
        let turn = timeout(TURN_WAIT, turn.write_owned()).await.map_err(|_| BackupError::Busy)?;
        backup.turn = Some(turn);
        backup.files = self.source.backup(with_secrets_key).await?;
        Ok(backup)
    }
}

impl Backup {
    /// Number of files.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// The function to call when the client has taken the whole archive. Only then it counts as the
    /// last backup: a part of an archive that was written may still wait for a client that never
    /// reads it.
    pub fn on_received(&self) -> impl FnOnce() + Send + use<> {
        let deployed = self.deployed.clone();
        move || deployed.backed_up_at_ms.store(deployed.now().as_millis(), Ordering::Relaxed)
    }

    /// Writes the archive: a tar file whose last file is [`CHECKSUMS`]. Blocks the thread while it
    /// reads files and while `into` takes no more.
    ///
    /// # Errors
    /// Those of `into` and of the file system, and a component that does not match the digest in
    /// its name; then the archive is incomplete.
    pub fn write(mut self, into: &mut impl Write) -> io::Result<()> {
        write_files(std::mem::take(&mut self.files), into)
    }
}

fn write_files(files: Vec<BackupFile>, into: &mut impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(&mut *into);
    let mut sums = String::new();
    for BackupFile { name, bytes, content } in files {
        let mut content = Hashed { content: content.take(bytes), bytes: 0, hash: Sha256::new() };
        archive.append_data(&mut head(bytes), &name, &mut content)?;
        if content.bytes != bytes {
            return Err(io::Error::other(format!("{name} has become shorter")));
        }
        let sum = HEXLOWER.encode(&content.hash.finalize());
        // Every client refuses the archive otherwise, after the host has counted it as made.
        if component_digest(&name).is_some_and(|digest| digest != sum) {
            return Err(io::Error::other(format!(
                "{name} is damaged: it does not match the digest in its name"
            )));
        }
        // Writing to a String cannot fail.
        let _ = writeln!(sums, "{sum}  {name}");
    }
    archive.append_data(&mut head(sums.len() as u64), CHECKSUMS, sums.as_bytes())?;
    archive.finish()?;
    drop(archive);
    into.flush()
}

fn head(bytes: u64) -> tar::Header {
    let mut head = tar::Header::new_gnu();
    head.set_size(bytes);
    head.set_mode(0o600);
    head
}

/// Reads a file, and hashes the bytes.
struct Hashed<R> {
    content: R,
    bytes: u64,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read(into)?;
        self.hash.update(into.get(..count).unwrap_or_default());
        self.bytes += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::backup::{COMPONENTS, DATABASE};

    use super::*;

    fn file(name: &str, content: &'static [u8]) -> BackupFile {
        let bytes = content.len() as u64;
        BackupFile { name: name.to_owned(), bytes, content: Box::new(content) }
    }

    #[test]
    fn a_damaged_component_fails_the_backup_and_is_named() {
        let digest = HEXLOWER.encode(&Sha256::digest(b"handler"));
        let name = format!("{COMPONENTS}/{digest}.wasm");
        let written = |content: &'static [u8]| {
            let files = vec![file(DATABASE, b"tables"), file(&name, content)];
            write_files(files, &mut Vec::new())
        };
        written(b"handler").unwrap();
        let refused = written(b"hendler").unwrap_err().to_string();
        assert!(refused.contains(&name), "{refused}");
    }
}
