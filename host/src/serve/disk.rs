//! Measures the free bytes and inodes of the data directory's file system, and keeps a ballast file
//! there.
//!
//! **Promises.** New work is refused before the disk is full ([`DiskSpaceGauge`]). The ballast is a
//! placeholder file of up to 16 MiB. It is removed when the disk is full, so that a start has room
//! for its writes, and so that cancels, deletes and expiry can free more space; it is created again
//! when there is room.
//!
//! **Costs.** One call of `statvfs` in each [`PAUSE`], on a separate thread, so that a file system
//! that hangs delays nothing else.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gristmill_core::sharing::disk_space::{DiskSpaceGauge, Shortage};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::data_dir;

/// Interval of the measurements: a disk that is filled with 1 GB/s loses a quarter of the usual
/// reserve in this time.
const PAUSE: Duration = Duration::from_millis(250);

const BALLAST: &str = "ballast";

/// A start writes a segment's first MiB, a few pages of the tables, and its repairs.
const BALLAST_BYTES_MAX: u64 = 16 << 20;

/// The reserve without an option: the larger of 1 GiB and one part in this many of the disk.
const USUAL_PARTS: u64 = 50;

/// The divisor of the disk for the largest default reserve, for small disks.
const LARGEST_PARTS: u64 = 10;

/// The disk of one data directory.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    dir: PathBuf,
    /// Bytes that should stay free; `None`: by the size of the disk.
    reserve_bytes: Option<u64>,
    disk_space: Arc<DiskSpaceGauge>,
}

/// The used and free space of a file system.
#[derive(Debug, Clone, Copy)]
struct Space {
    free: u64,
    all: u64,
    inodes_free: u64,
    /// 0 when the file system creates inodes as they are needed.
    inodes: u64,
}

impl Disk {
    /// Measures the disk of `dir`, which is created if it does not exist. Frees the ballast if the
    /// disk is full. Blocks for some 10 µs.
    ///
    /// # Errors
    /// When the directory cannot be created, or its file system does not report its space.
    pub(crate) fn open(
        dir: &Path,
        reserve_bytes: Option<u64>,
        disk_space: Arc<DiskSpaceGauge>,
    ) -> anyhow::Result<Self> {
        match data_dir::make(dir) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!(data_dir::not_permitted(dir))
            }
            created => created.with_context(|| {
                format!("cannot create the data directory `{}` (--data-dir)", dir.display())
            })?,
        }
        let disk = Self { dir: dir.to_owned(), reserve_bytes, disk_space };
        let cannot_measure = || format!("cannot measure the disk of `{}`", dir.display());
        // Without a new ballast: the store may refuse this directory, which then must not change.
        disk.measure().with_context(cannot_measure)?;
        Ok(disk)
    }

    /// Continues to measure while the gauge is used elsewhere, until `until` fires. Calls `on_room`
    /// when waiting jobs may start again, and `on_tight` after each measurement of a disk that is
    /// nearly full.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn watch(
        self,
        until: CancellationToken,
        on_room: impl Fn() + Send + 'static,
        on_tight: impl Fn() + Send + 'static,
    ) -> anyhow::Result<()> {
        let Self { dir, reserve_bytes, disk_space } = self;
        let disk_space = Arc::downgrade(&disk_space);
        let run = move || {
            let mut before = Seen::default();
            while let Some(disk_space) = Weak::upgrade(&disk_space) {
                if until.is_cancelled() {
                    return;
                }
                let disk = Self { dir: dir.clone(), reserve_bytes, disk_space };
                let now = Seen::of(disk.look(), &disk.disk_space);
                now.report(&before, &disk.disk_space);
                if disk.disk_space.may_start_again() {
                    on_room();
                }
                if disk.disk_space.is_tight() {
                    on_tight();
                }
                before = now;
                drop(disk);
                thread::sleep(PAUSE);
            }
        };
        let thread = thread::Builder::new().name("disk-watch".to_owned());
        thread.spawn(run).context("cannot start the thread that watches the disk")?;
        Ok(())
    }

    /// Sets the gauge, and frees or creates the ballast.
    ///
    /// # Errors
    /// Those of [`Disk::measure`].
    fn look(&self) -> io::Result<()> {
        let (space, reserve) = self.measure()?;
        let (ballast, bytes) = (self.dir.join(BALLAST), ballast_bytes(reserve));
        let has_room = space.free > reserve.saturating_add(2 * bytes)
            && !self.disk_space.has_waiting_writers();
        if bytes > 0 && has_room && !ballast.exists() {
            // Without a ballast, a start on a full disk may fail; there is no other effect.
            if make_ballast(&ballast, bytes).is_err() {
                let _ = fs::remove_file(&ballast);
            }
        }
        Ok(())
    }

    /// Sets the gauge, and frees the ballast if the disk is full. Returns the space and the reserve
    /// in bytes.
    ///
    /// # Errors
    /// When the file system does not report its space. The gauge continues to subtract the bytes
    /// that are granted, so that new work is refused before a disk that cannot be measured is full.
    fn measure(&self) -> io::Result<(Space, u64)> {
        let granted = self.disk_space.granted_bytes();
        let space = Space::of(&self.dir)?;
        let reserve = self.reserve_bytes.unwrap_or_else(|| usual_reserve(space.all));
        self.disk_space.set_measured(space.free, reserve, granted);
        self.disk_space.set_inodes(space.inodes_free, inode_reserve(reserve, space));
        let ballast = self.dir.join(BALLAST);
        let is_full =
            self.disk_space.has_waiting_writers() || space.free < ballast_bytes(reserve) / 2;
        if is_full && ballast.exists() {
            match fs::remove_file(&ballast) {
                Ok(()) => warn!("the disk is full: freed the ballast `{}`", ballast.display()),
                Err(error) => error!(%error, "the ballast cannot be freed: {error}"),
            }
        }
        Ok((space, reserve))
    }
}

/// The size of the ballast.
fn ballast_bytes(reserve: u64) -> u64 {
    BALLAST_BYTES_MAX.min(reserve / 2)
}

impl Space {
    fn of(dir: &Path) -> io::Result<Self> {
        let stat = statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Self {
            free: bytes(stat.f_bavail),
            all: bytes(stat.f_blocks),
            inodes_free: stat.f_favail,
            inodes: stat.f_files,
        })
    }
}

/// The last report.
#[derive(Debug)]
struct Seen {
    measured: io::Result<()>,
    admits: bool,
    may_start: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self { measured: Ok(()), admits: true, may_start: true }
    }
}

impl Seen {
    fn of(measured: io::Result<()>, disk_space: &DiskSpaceGauge) -> Self {
        let (admits, may_start) = (disk_space.admits_work(), disk_space.has_space_to_start());
        Self { measured, admits, may_start }
    }

    fn report(&self, before: &Self, disk_space: &DiskSpaceGauge) {
        if before.measured.is_ok()
            && let Err(error) = &self.measured
        {
            error!(%error, "the free space of the disk cannot be measured: {error}");
        }
        let free = disk_space.free_bytes() >> 20;
        let (is_left, of_reserve) = match disk_space.shortage() {
            Shortage::Bytes => {
                (format!("{free} MiB left"), format!("{} MiB", disk_space.reserve_bytes() >> 20))
            }
            Shortage::Inodes => (
                format!("{} inodes left", disk_space.free_inodes()),
                disk_space.reserve_inodes().to_string(),
            ),
        };
        if before.admits && !self.admits {
            error!(
                free_mib = free,
                "the disk has {is_left}, and {of_reserve} are its reserve: new work is refused"
            );
        }
        if before.may_start && !self.may_start {
            error!(free_mib = free, "the disk has {is_left}: no waiting job is started");
        }
        if !before.admits && self.admits {
            info!(free_mib = free, "the disk has {free} MiB again: new work is accepted");
        }
    }
}

/// The default reserve of a disk of this size.
fn usual_reserve(all: u64) -> u64 {
    (all / USUAL_PARTS).max(1 << 30).min(all / LARGEST_PARTS)
}

/// The inodes that stay free: the same share of them as the reserve has of the bytes.
fn inode_reserve(reserve: u64, space: Space) -> u64 {
    let share = u128::from(space.inodes) * u128::from(reserve) / u128::from(space.all.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

fn make_ballast(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    // Not synced: a ballast that is lost with a loss of power is created again.
    Ok(fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_suits_the_disk() {
        let gib = |count: u64| count << 30;
        for (all, expected) in [
            (0, 0),
            (100 << 20, 10 << 20),
            (gib(5), gib(5) / 10),
            (gib(20), gib(1)),
            (gib(50), gib(1)),
            (gib(500), gib(10)),
        ] {
            assert_eq!(usual_reserve(all), expected, "of {all}");
        }
    }

    #[test]
    fn inodes_have_the_share_of_bytes_as_their_reserve() {
        let reserve = |reserve, inodes| {
            inode_reserve(reserve, Space { free: 0, all: 1_000, inodes_free: 0, inodes })
        };
        assert_eq!((reserve(20, 65_536), reserve(0, 65_536)), (1_310, 0));
        assert_eq!(reserve(20, 0), 0, "made as they are needed");
        assert_eq!(reserve(u64::MAX, u64::MAX), u64::MAX);
        let empty = Space { free: 0, all: 0, inodes_free: 0, inodes: 7 };
        assert_eq!(inode_reserve(0, empty), 0);
    }

    #[test]
    fn the_ballast_is_freed_on_a_full_disk_and_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("data");
        let open = |reserve| Disk::open(&dir, Some(reserve), Arc::default()).unwrap();
        let disk = open(2 << 20);
        let ballast = dir.join(BALLAST);
        assert!(!ballast.exists(), "a directory that the store may refuse is not changed");
        disk.look().unwrap();
        assert_eq!(fs::metadata(&ballast).unwrap().len(), 1 << 20);
        let space_wait = disk.disk_space.wait_for_space();
        disk.look().unwrap();
        assert!(!ballast.exists());
        drop(space_wait);
        disk.look().unwrap();
        assert!(ballast.exists() && disk.disk_space.admits_work());
        let huge = open(u64::MAX / 2);
        assert!(!huge.disk_space.admits_work() && !huge.disk_space.has_space_to_start());
        huge.look().unwrap();
        assert!(!huge.disk_space.admits_work());
        assert!(open(0).disk_space.admits_work());
        fs::remove_dir_all(&dir).unwrap();
        disk.disk_space.grant(disk.disk_space.free_bytes());
        assert!(disk.look().is_err() && !disk.disk_space.admits_work(), "not measured");
    }
}
