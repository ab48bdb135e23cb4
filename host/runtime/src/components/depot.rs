//! This host's files of components, and the [depot] in which hosts of one database share them.
//!
//! **Invariant.** A component with a record is in the depot: it is put there before its record is
//! written, and removed from there only without a record. The digest of fetched bytes is checked.
//!
//! **Bounds.** One part is in memory at a time. Puts and removals of one host take turns, so that a
//! removal never meets the put of the same component.
//!
//! [depot]: gristmill_core::depot

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::depot::{Depot, PART_BYTES};
use gristmill_core::limits::COMPONENT_BYTES_MAX;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use tracing::info;

use crate::files::{self, Unfinished, blocking};

/// Parts of the largest component.
const PARTS_MAX: usize = COMPONENT_BYTES_MAX.div_ceil(PART_BYTES);

/// The components in the depot.
#[derive(Debug)]
pub(crate) struct SharedComponents {
    depot: Arc<dyn Depot>,
    /// Held by a put and by a removal.
    turn: Mutex<()>,
}

impl SharedComponents {
    pub(crate) fn new(depot: Arc<dyn Depot>) -> Self {
        Self { depot, turn: Mutex::default() }
    }

    /// Puts the file of a component into the depot.
    pub(crate) async fn put(&self, component: ComponentDigest, file: &Path) -> io::Result<()> {
        let _turn = self.turn.lock().await;
        for number in 0.. {
            let path = file.to_owned();
            let bytes = blocking(move || read_part(&path, number)).await?;
            let is_last = bytes.len() < PART_BYTES;
            if !bytes.is_empty() {
                self.depot.put_part(component, number, bytes).await?;
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Writes a component to its file, and returns its size; `None` when the depot does not have it
    /// as a whole.
    pub(crate) async fn fetch(
        &self,
        component: ComponentDigest,
        path: &Path,
    ) -> io::Result<Option<u64>> {
        let unfinished = Unfinished::at(path);
        let temporary = unfinished.temporary().to_owned();
        let mut copy = blocking(move || Copy::begin(&temporary)).await?;
        for number in 0..u32::try_from(PARTS_MAX).unwrap_or(u32::MAX) {
            let Some(part) = self.depot.part(component, number).await? else { break };
            copy = blocking(move || copy.add(&part)).await?;
        }
        let bytes = copy.bytes;
        if !blocking(move || copy.finish(component)).await? {
            return Ok(None);
        }
        blocking(move || unfinished.finish()).await?;
        info!("fetched component `{component}` from the database: {bytes} bytes");
        Ok(Some(bytes))
    }

    /// Removes a component, unless it is needed.
    pub(crate) async fn remove(
        &self,
        component: ComponentDigest,
        is_needed: impl Fn() -> bool,
    ) -> io::Result<()> {
        let _turn = self.turn.lock().await;
        // An upload that begins now puts the component again, after this turn.
        if is_needed() { Ok(()) } else { self.depot.remove(component).await }
    }

    /// Removes all components that are not needed.
    pub(crate) async fn sweep(
        &self,
        is_needed: impl Fn(ComponentDigest) -> bool,
    ) -> io::Result<()> {
        for component in self.depot.components().await? {
            self.remove(component, || is_needed(component)).await?;
        }
        Ok(())
    }
}

/// The part of a file with this number; shorter than a whole part at the end of the file.
fn read_part(path: &Path, number: u32) -> io::Result<Bytes> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(u64::from(number) * PART_BYTES as u64))?;
    let mut bytes = Vec::with_capacity(PART_BYTES);
    file.take(PART_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// A file that parts are being written to.
struct Copy {
    file: File,
    hash: Sha256,
    bytes: u64,
}

impl Copy {
    fn begin(path: &Path) -> io::Result<Self> {
        Ok(Self { file: files::create_private(path)?, hash: Sha256::new(), bytes: 0 })
    }

    fn add(mut self, part: &[u8]) -> io::Result<Self> {
        self.file.write_all(part)?;
        self.hash.update(part);
        self.bytes += part.len() as u64;
        Ok(self)
    }

    /// Syncs the file and closes it. Returns whether it is this component.
    fn finish(self, component: ComponentDigest) -> io::Result<bool> {
        self.file.sync_all()?;
        Ok(ComponentDigest::from_sha256(self.hash.finalize().into()) == component)
    }
}
