//! The directory with the files of all endpoints.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_core::id::OwnerId;
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::logs::{ArchivePage, ArchiveQuery, Batch, LogArchive};
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use parking_lot::Mutex;
use tracing::warn;

use crate::files::{self, Appended, EndpointBounds, EndpointFiles, Segment};
use crate::recovery;
use crate::segment::SEGMENT_BYTES_MAX;

/// Settings of the directory.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Most bytes of an endpoint's files.
    pub endpoint_bytes_max: u64,
    /// Most bytes of all files, in the blocks of the file system.
    pub all_bytes_max: u64,
    /// The disk that the directory is on.
    pub disk_space: Arc<DiskSpaceGauge>,
}

/// The directory of all endpoints' files.
#[derive(Debug)]
pub struct LogDirectory {
    dir: PathBuf,
    settings: LogSettings,
    endpoints: Mutex<HashMap<EndpointIncarnation, Arc<Endpoint>>>,
    /// Space that all files take.
    disk_bytes: AtomicU64,
}

/// The files of one endpoint.
#[derive(Debug)]
struct Endpoint {
    account: DiskAccount,
    /// Held while lines are taken from memory and written, so that a reader finds each line in
    /// memory or in the files.
    files: Mutex<EndpointFiles>,
}

/// Why lines cannot be written at present.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The disk, or the owner's share of it, has no room.
    NoRoom,
    Io(io::Error),
}

/// A directory that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The directory.
    pub directory: Arc<LogDirectory>,
    /// The numbers of the last lines of the endpoints that have any.
    pub last_numbers: Vec<(EndpointIncarnation, u64)>,
}

impl LogDirectory {
    /// Opens the files of these endpoints in `dir`, and deletes those of all others. A directory
    /// that cannot be read has none.
    pub fn open<'e>(
        dir: &Path,
        settings: LogSettings,
        endpoints: impl IntoIterator<Item = &'e EndpointIncarnation>,
    ) -> Opened {
        let directory = Self {
            dir: dir.to_owned(),
            settings,
            endpoints: Mutex::default(),
            disk_bytes: AtomicU64::new(0),
        };
        let named: HashMap<_, _> =
            endpoints.into_iter().map(|endpoint| (endpoint.name_on_disk(), endpoint)).collect();
        let listed = recovery::list(dir, |path, name, bytes| {
            let bytes = bytes.filter(|bytes| *bytes <= SEGMENT_BYTES_MAX);
            let (Some(endpoint), Some(bytes)) = (named.get(name.of), bytes) else {
                return recovery::remove(path);
            };
            let endpoint = directory.endpoint(endpoint);
            endpoint.files.lock().add_found(Segment { first: name.first, bytes });
        });
        if let Err(error) = listed {
            let dir = dir.display();
            warn!(%error, "the handlers' log files in {dir} cannot be listed: {error}");
        }
        let last_numbers = directory.recover();
        directory.drop_excess();
        Opened { directory: Arc::new(directory), last_numbers }
    }

    /// Deletes all files of this host in `dir`: no lines are kept on disk any more.
    pub fn clear(dir: &Path) {
        if let Err(error) = recovery::list(dir, |path, _, _| recovery::remove(path)) {
            let dir = dir.display();
            warn!(%error, "the handlers' log files in {dir} cannot be listed: {error}");
        }
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Prepares the files that were found for further lines, and returns the numbers of their last
    /// ones.
    fn recover(&self) -> Vec<(EndpointIncarnation, u64)> {
        let bounds = EndpointBounds::new(self.settings.endpoint_bytes_max);
        let endpoints = self.endpoints.lock();
        let last_numbers = endpoints.iter().filter_map(|(incarnation, endpoint)| {
            let mut files = endpoint.files.lock();
            let newest = files.newest()?;
            let tail = recovery::recover(&files.path(&self.dir, newest.first), newest.bytes);
            files.set_newest(tail.bytes, tail.is_continuable);
            files.keep_within(&self.dir, bounds);
            self.disk_bytes.fetch_add(files.disk_bytes(), Ordering::Relaxed);
            Some((incarnation.clone(), tail.last_number.unwrap_or(0).max(newest.first)))
        });
        last_numbers.collect()
    }

    /// The endpoint's files; a new entry if it has none.
    fn endpoint(&self, incarnation: &EndpointIncarnation) -> Arc<Endpoint> {
        match self.endpoints.lock().entry(incarnation.clone()) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => {
                let account = DiskAccount::new(&self.settings.disk_space, incarnation.owner());
                let charge = account.charge_existing(0);
                let files = EndpointFiles::new(incarnation.name_on_disk(), charge);
                entry.insert(Arc::new(Endpoint { account, files: Mutex::new(files) })).clone()
            }
        }
    }

    /// Appends the lines that `take` returns. `put_back` gets them again, with the number up to
    /// which they were written, if not all of them were.
    pub(crate) fn append(
        &self,
        incarnation: &EndpointIncarnation,
        take: impl FnOnce() -> Option<Batch>,
        put_back: impl FnOnce(&Batch, Option<u64>),
    ) -> Result<(), Refusal> {
        if incarnation.has_ended() {
            return Ok(());
        }
        let endpoint = self.endpoint(incarnation);
        let mut files = endpoint.files.lock();
        let Some(batch) = take() else { return Ok(()) };
        let bytes = batch.bytes() as u64;
        let disk_space = &self.settings.disk_space;
        // Before new work is refused: log lines must not be the reason for that.
        if disk_space.is_tight() || !endpoint.account.admits_work(bytes) {
            put_back(&batch, None);
            return Err(Refusal::NoRoom);
        }
        disk_space.grant(bytes);
        let before = files.disk_bytes();
        let bounds = EndpointBounds::new(self.settings.endpoint_bytes_max);
        let Appended { written_to, outcome } = files.append(&self.dir, batch.to_write(), bounds);
        self.disk_bytes.fetch_add(files.disk_bytes(), Ordering::Relaxed);
        self.disk_bytes.fetch_sub(before, Ordering::Relaxed);
        if outcome.is_err() {
            put_back(&batch, written_to);
        }
        drop(files);
        self.drop_excess();
        outcome.map_err(Refusal::Io)
    }

    /// Deletes the oldest files of the largest endpoints of the owners with the most, until all
    /// files are within their bound.
    fn drop_excess(&self) {
        while self.disk_bytes.load(Ordering::Relaxed) > self.settings.all_bytes_max {
            let Some(largest) = self.largest() else { return };
            let mut files = largest.files.lock();
            let before = files.disk_bytes();
            if !files.delete_oldest(&self.dir) {
                return;
            }
            self.disk_bytes.fetch_sub(before - files.disk_bytes(), Ordering::Relaxed);
        }
    }

    /// The endpoint with the most bytes of the owner with the most.
    fn largest(&self) -> Option<Arc<Endpoint>> {
        let endpoints = self.endpoints.lock();
        let mut owners: HashMap<&OwnerId, (u64, u64, &Arc<Endpoint>)> = HashMap::new();
        for (incarnation, endpoint) in &*endpoints {
            let bytes = endpoint.files.lock().disk_bytes();
            let (sum, most, largest) =
                owners.entry(incarnation.owner()).or_insert((0, 0, endpoint));
            *sum += bytes;
            if bytes > *most {
                (*most, *largest) = (bytes, endpoint);
            }
        }
        let (_, most, largest) = owners.into_values().max_by_key(|(sum, ..)| *sum)?;
        (most > 0).then(|| largest.clone())
    }

    /// Deletes the files of a deleted endpoint.
    pub(crate) fn remove(&self, incarnation: &EndpointIncarnation) {
        let Some(endpoint) = self.endpoints.lock().remove(incarnation) else { return };
        let mut files = endpoint.files.lock();
        self.disk_bytes.fetch_sub(files.disk_bytes(), Ordering::Relaxed);
        while files.delete_oldest(&self.dir) {}
    }
}

impl LogArchive for LogDirectory {
    fn read(&self, endpoint: &EndpointIncarnation, query: ArchiveQuery) -> ArchivePage {
        let Some(endpoint) = self.endpoints.lock().get(endpoint).cloned() else {
            return ArchivePage::default();
        };
        let selected = endpoint.files.lock().select(&self.dir, query);
        files::read(&selected, query)
    }
}
