//! Whether this machine has had swap since the watch began.
//!
//! **Promise.** Once swap was seen the answer stays yes, even after it was disabled, since the
//! effects on memory are unknown. **Cost.** A query is one atomic load; a thread wakes up when the
//! kernel reports a change of `/proc/swaps`, and every ten seconds.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::warn;

/// The kernel's list of swap areas.
const SWAPS: &str = "/proc/swaps";

/// Interval at which the list is read without a report of the kernel.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The watch of this process, for all of its sandboxes.
static OF_THIS_MACHINE: LazyLock<SwapWatch> =
    LazyLock::new(|| SwapWatch::start(SWAPS.into(), RECHECK_INTERVAL));

/// Whether there has been swap. Clones share the answer.
#[derive(Debug, Clone)]
pub(crate) struct SwapWatch {
    has_swap: Arc<AtomicBool>,
}

impl SwapWatch {
    /// The watch of this machine.
    pub(crate) fn of_this_machine() -> Self {
        OF_THIS_MACHINE.clone()
    }

    /// Watches a list of swap areas, which is read again after this long at the latest. The thread
    /// ends when swap was seen, or with the last clone. A machine on which the thread cannot be
    /// started counts as one with swap.
    pub(crate) fn start(list: PathBuf, again: Duration) -> Self {
        let has_swap = Arc::new(AtomicBool::new(lists_swap(&list)));
        let watched = Arc::downgrade(&has_swap);
        let thread = thread::Builder::new().name("swap-watch".to_owned());
        if let Err(error) = thread.spawn(move || watch(&watched, &list, again)) {
            warn!(%error, "cannot watch for swap: {error}");
            has_swap.store(true, Ordering::Release);
        }
        Self { has_swap }
    }

    /// Whether there is swap, or has been.
    pub(crate) fn has_seen_swap(&self) -> bool {
        self.has_swap.load(Ordering::Acquire)
    }
}

fn watch(watched: &Weak<AtomicBool>, list: &Path, again: Duration) {
    // Opened before it is read, so that every later change ends the wait.
    let file = File::open(list);
    while let Some(has_swap) = watched.upgrade() {
        if has_swap.load(Ordering::Acquire) {
            return;
        }
        if lists_swap(list) {
            has_swap.store(true, Ordering::Release);
            warn!(
                "swap was enabled on this machine: from now on the memory of sandboxes is cleared \
                 without the kernel's list of changed pages, which is slower"
            );
            return;
        }
        drop(has_swap);
        wait(file.as_ref().ok(), again);
    }
}

/// Waits until the kernel reports a change of the file, or the time is over.
fn wait(file: Option<&File>, longest: Duration) {
    let waited = file.map(|file| {
        let time = Timespec::try_from(longest).ok();
        poll(&mut [PollFd::new(file, PollFlags::PRI)], time.as_ref())
    });
    if !matches!(waited, Some(Ok(_))) {
        thread::sleep(longest);
    }
}

/// Whether a list has an area. An unreadable list means that there is no procfs: then swap is
/// assumed.
fn lists_swap(list: &Path) -> bool {
    let text: io::Result<String> = std::fs::read_to_string(list);
    // A header line, then a line for each area.
    text.map_or(true, |text| text.lines().skip(1).any(|line| !line.trim().is_empty()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::time::Instant;

    use tempfile::TempDir;

    use super::*;

    const HEADER: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

    /// A list of swap areas that a test writes.
    #[derive(Debug)]
    pub(crate) struct FakeSwaps(TempDir);

    impl FakeSwaps {
        /// A machine without swap.
        pub(crate) fn none() -> Self {
            let swaps = Self(tempfile::tempdir().unwrap());
            fs::write(swaps.list(), HEADER).unwrap();
            swaps
        }

        fn list(&self) -> PathBuf {
            self.0.path().join("swaps")
        }

        pub(crate) fn watch(&self) -> SwapWatch {
            SwapWatch::start(self.list(), Duration::from_millis(5))
        }

        /// Enables swap, and waits until the watch has seen it.
        pub(crate) fn enable(&self, watch: &SwapWatch) {
            let area = "/swapfile                               file\t\t1048572\t\t0\t\t-2\n";
            fs::write(self.list(), format!("{HEADER}{area}")).unwrap();
            let begun = Instant::now();
            while !watch.has_seen_swap() {
                assert!(begun.elapsed() < Duration::from_secs(30), "swap was not seen");
                thread::sleep(Duration::from_millis(1));
            }
        }

        /// Disables it.
        pub(crate) fn disable(&self) {
            fs::write(self.list(), HEADER).unwrap();
        }
    }

    #[test]
    fn swap_that_was_seen_stays_seen() {
        let swaps = FakeSwaps::none();
        let watch = swaps.watch();
        assert!(!watch.has_seen_swap());
        swaps.enable(&watch);
        swaps.disable();
        thread::sleep(Duration::from_millis(50));
        assert!(watch.has_seen_swap());
        assert!(!swaps.watch().has_seen_swap(), "a new process begins anew");
    }

    #[test]
    fn a_machine_that_shows_no_list_counts_as_one_with_swap() {
        let directory = tempfile::tempdir().unwrap();
        let watch = SwapWatch::start(directory.path().join("none"), Duration::from_millis(5));
        assert!(watch.has_seen_swap());
    }

    /// The kernel's own list supports waiting.
    #[test]
    fn the_list_of_this_machine_ends_a_wait_by_time_only() {
        let file = File::open(SWAPS).unwrap();
        let begun = Instant::now();
        wait(Some(&file), Duration::from_millis(200));
        assert!(begun.elapsed() >= Duration::from_millis(200), "nothing has changed");
    }
}
