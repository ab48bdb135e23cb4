//! The way back from an upgrade: a copy of the tables and the journal, made before an upgrade
//! changes anything.
//!
//! The copy is the directory [`SchemaUpgrade::copy`] in the data directory, with the files' names
//! there. It is on stable storage, and complete, as soon as it has this name. The operator removes
//! it. A start that is interrupted before the upgrade leaves a directory of the old version, so the
//! next start makes the copy again.
//!
//! **Bounds.** The copy is as large as the tables and the journal: a directory without room for it,
//! and for what the upgrade adds to the tables, is refused. **Cost.** Reading and writing these
//! files once.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_core::backup::{DATABASE, JOURNAL};
use gristmill_core::runtime::is_no_space;
use rustix::fs::statvfs;
use tracing::info;

use crate::error::{OpenError, SchemaUpgrade};
use crate::private::{make_private_dir, open_private_file};
use crate::tables::frozen::{FrozenFile, OpenFile};

/// Bytes that stay free besides the copy, for small changes of the tables.
const SPARE_BYTES: u64 = 4 << 20;

/// The upgrade itself may take this part of the tables' size: an index of all jobs, in the tables
/// and in their write-ahead log.
const GROWTH_DIVISOR: u64 = 8;

/// Bytes of one write.
const PIECE_BYTES: usize = 1 << 20;

/// Copies the tables, with their open file `database`, and the journal. Replaces an earlier copy,
/// which belongs to a start that did not reach the upgrade, or to an upgrade that was taken back.
/// Nothing may change these files meanwhile.
///
/// # Errors
/// [`OpenError::NoRoomForUpgrade`], and errors of the file system.
pub(crate) fn keep(
    dir: &Path,
    upgrade: SchemaUpgrade,
    database: &Arc<OpenFile>,
) -> Result<(), OpenError> {
    let in_dir = |source| OpenError::Directory { dir: dir.to_owned(), source };
    let copy = dir.join(upgrade.copy());
    let unfinished = copy.with_added_extension("unfinished");
    remove(&unfinished).map_err(in_dir)?;
    if copy.exists() {
        // A directory with the final name is always complete.
        fs::rename(&copy, &unfinished).and_then(|()| remove(&unfinished)).map_err(in_dir)?;
    }
    let (database, _thaw) = FrozenFile::of(database).map_err(in_dir)?;
    let files = files(dir).map_err(in_dir)?;
    let copied = files.iter().map(|(_, bytes)| bytes).sum::<u64>() + database.size();
    let in_all = copied + database.size() / GROWTH_DIVISOR + SPARE_BYTES;
    let free = free(dir).map_err(in_dir)?;
    let no_room =
        |needed| OpenError::NoRoomForUpgrade { dir: dir.to_owned(), upgrade, needed, free };
    if free < in_all {
        return Err(no_room(in_all));
    }
    info!(
        bytes = copied,
        "the tables and the journal have schema version {}: copying {} MiB to `{}` before the \
         upgrade to version {}",
        upgrade.from,
        copied >> 20,
        copy.display(),
        upgrade.to
    );
    match fill(&unfinished, dir, database, &files) {
        Ok(()) => {}
        Err(error) if is_no_space(&error) => {
            remove(&unfinished).map_err(in_dir)?;
            return Err(no_room(copied));
        }
        Err(error) => return Err(in_dir(error)),
    }
    fs::rename(&unfinished, &copy).map_err(in_dir)?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(in_dir)
}

/// The files besides the database, by their names below `dir`, with their sizes.
fn files(dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = vec![];
    let log = PathBuf::from(format!("{DATABASE}-wal"));
    if let Ok(metadata) = fs::metadata(dir.join(&log)) {
        files.push((log, metadata.len()));
    }
    match fs::read_dir(dir.join(JOURNAL)) {
        Ok(entries) => {
            for entry in entries {
                let entry = entry?;
                files.push((Path::new(JOURNAL).join(entry.file_name()), entry.metadata()?.len()));
            }
        }
        // A store without any job.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(files)
}

/// Copies the files into the new directory `copy`, durably.
fn fill(
    copy: &Path,
    dir: &Path,
    mut database: FrozenFile,
    files: &[(PathBuf, u64)],
) -> io::Result<()> {
    make_private_dir(&copy.join(JOURNAL))?;
    copy_file(&mut database, &copy.join(DATABASE))?;
    for (name, _) in files {
        copy_file(&mut File::open(dir.join(name))?, &copy.join(name))?;
    }
    File::open(copy.join(JOURNAL))?.sync_all()?;
    File::open(copy)?.sync_all()
}

/// Copies a file, durably.
fn copy_file(from: &mut dyn Read, to: &Path) -> io::Result<()> {
    let mut to = BufWriter::with_capacity(PIECE_BYTES, open_private_file(to)?);
    io::copy(from, &mut to)?;
    to.into_inner()?.sync_all()
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn free(dir: &Path) -> io::Result<u64> {
    let stat = statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
