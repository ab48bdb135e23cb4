//! Directories as handlers list them: a few entries at a time are in memory, however many there
//! are.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;
use wasmtime_wasi::p2::bindings::filesystem::types::{DirectoryEntry, ErrorCode};

use super::io_limits::IoSlot;
use super::node::{Node, code, descriptor_type};

/// Entries that are read at one time.
const ENTRIES_READ: usize = 64;

/// A directory that is being listed.
#[derive(Debug)]
pub(crate) struct Listing {
    node: Arc<Node>,
    directory: Arc<Mutex<Dir>>,
    read: VecDeque<Result<DirectoryEntry, ErrorCode>>,
    is_over: bool,
    _slot: IoSlot,
}

impl Listing {
    /// Begins to list a directory.
    ///
    /// # Errors
    /// When it is no directory, or too many descriptors are open.
    pub(crate) async fn begin(node: &Arc<Node>) -> Result<Self, ErrorCode> {
        let slot = node.io_limits.open_file()?;
        let directory = node.look(|node| Dir::new(node.directory()?).map_err(code)).await?;
        Ok(Self {
            node: node.clone(),
            directory: Arc::new(Mutex::new(directory)),
            read: VecDeque::new(),
            is_over: false,
            _slot: slot,
        })
    }

    /// The next entry; `None` after the last one.
    ///
    /// # Errors
    /// Those of the file system, and [`ErrorCode::IllegalByteSequence`] for a name that is not
    /// UTF-8.
    pub(crate) async fn next(&mut self) -> Result<Option<DirectoryEntry>, ErrorCode> {
        if self.read.is_empty() && !self.is_over {
            let directory = self.directory.clone();
            self.read = self.node.look(move |_| Ok(read(&mut directory.lock()))).await?;
            self.is_over = self.read.len() < ENTRIES_READ;
        }
        self.read.pop_front().transpose()
    }
}

fn read(directory: &mut Dir) -> VecDeque<Result<DirectoryEntry, ErrorCode>> {
    let mut entries = VecDeque::with_capacity(ENTRIES_READ);
    while entries.len() < ENTRIES_READ {
        match next(directory) {
            Ok(Some(entry)) => entries.push_back(Ok(entry)),
            Ok(None) => break,
            Err(error) => entries.push_back(Err(error)),
        }
    }
    entries
}

fn next(directory: &mut Dir) -> Result<Option<DirectoryEntry>, ErrorCode> {
    loop {
        let Some(entry) = directory.read() else { return Ok(None) };
        let entry = entry.map_err(code)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            // Not every file system reports the type.
            FileType::Unknown => {
                let directory = directory.fd().map_err(code)?;
                match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(code(error)),
                }
            }
            known => known,
        };
        let name = name.to_str().map_err(|_| ErrorCode::IllegalByteSequence)?.to_owned();
        return Ok(Some(DirectoryEntry { type_: descriptor_type(kind), name }));
    }
}
