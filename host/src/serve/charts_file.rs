//! Samples of the endpoints for charts, and the file that keeps them: `charts` in the data
//! directory.
//!
//! **Promise.** The file is replaced as a whole. A missing or damaged one means empty charts, and a
//! file that cannot be written is reported; neither keeps the host from working. **Bounds.** A
//! sample every ten seconds, a write every five minutes and at a clean end, of some megabytes for a
//! thousand endpoints; none while the disk is full.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_control::{Charts, SAMPLE_INTERVAL};
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::time::Clock;
use tokio::sync::Mutex;
use tracing::warn;

/// The name of the file.
const FILE: &str = "charts";

/// Samples between two writes: five minutes.
const SAMPLES_OF_WRITE: u64 = 30;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Keeps the charts in their file.
#[derive(Debug)]
pub(super) struct ChartsFile {
    charts: Charts,
    path: PathBuf,
    disk_space: Arc<DiskSpaceGauge>,
    /// Held by the one write.
    turn: Mutex<()>,
}

impl ChartsFile {
    /// Reads the charts of the last process.
    pub(super) fn open(
        charts: Charts,
        data_dir: &Path,
        disk_space: Arc<DiskSpaceGauge>,
    ) -> Arc<Self> {
        let path = data_dir.join(FILE);
        let damage = match read(&path) {
            Ok(Some(bytes)) => charts.restore(&bytes).err().map(|error| error.to_string()),
            Ok(None) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(damage) = damage {
            let file = path.display();
            warn!("the charts of the last days begin again, since {file} cannot be used: {damage}");
        }
        Arc::new(Self { charts, path, disk_space, turn: Mutex::default() })
    }

    /// Takes samples until the store is closed.
    pub(super) async fn sample(self: Arc<Self>, clock: Arc<dyn Clock>) {
        let mut next = clock.elapsed();
        for number in 1_u64.. {
            next = (next + SAMPLE_INTERVAL).max(clock.elapsed());
            clock.sleep_until_elapsed(next).await;
            if self.charts.sample().await.is_err() {
                return;
            }
            if number % SAMPLES_OF_WRITE == 0 {
                self.write().await;
            }
        }
    }

    /// Takes the last sample of this process, and writes the file.
    pub(super) async fn close(&self) {
        if self.charts.sample().await.is_ok() {
            self.write().await;
        }
    }

    async fn write(&self) {
        let _turn = self.turn.lock().await;
        if !self.disk_space.admits_work() {
            return;
        }
        let (charts, path) = (self.charts.clone(), self.path.clone());
        let written = tokio::task::spawn_blocking(move || replace(&path, &charts.to_bytes())).await;
        if let Ok(Err(error)) = written {
            let file = self.path.display();
            warn!(%error, "the charts cannot be written to {file}: {error}");
        }
    }
}

/// The content of the file; `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::other("it is no file")),
        Ok(found) if found.len() > FILE_BYTES_MAX => Err(io::Error::other("it is too large")),
        Ok(_) => std::fs::read(path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the file. It is not synced: after a loss of power the charts may begin again.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("tmp");
    std::fs::write(&unfinished, bytes)?;
    std::fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_anything_else_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        assert_eq!(read(&path).unwrap(), None);
        for content in ["one", "another"] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(content.as_bytes()));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let directory = dir.path().join("directory");
        std::fs::create_dir(&directory).unwrap();
        assert!(read(&directory).is_err());
        assert!(replace(&directory, b"x").is_err());
        let large = std::fs::File::create(&path).unwrap();
        large.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(read(&path).is_err());
    }
}
