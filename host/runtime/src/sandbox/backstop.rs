//! Keeps sandboxes from memory that the machine does not have.
//!
//! **Promise.** The account bounds what sandboxes have, as long as the rest of the process has no
//! more than its part. If it has more, as much is withheld from sandboxes, and all that is free
//! while the machine has less than [`FREE_PART`] of its memory. Jobs then wait, before the kernel
//! must end the host. Sandboxes that run keep what they have, and [`NEVER_WITHHELD`] are left to
//! small ones.
//! **Cost.** Two short files of the kernel, read each [`LOOK`] while sandboxes exist: 40 µs.

use std::fs;
use std::io;
use std::time::Duration;

use gristmill_core::sharing::permits::{PermitBytes, Permits};
use tracing::warn;

/// Interval of the looks.
const LOOK: Duration = Duration::from_millis(250);

/// Sandboxes get no more while less than this part of the memory is free.
const FREE_PART: u64 = 16;

/// Memory of sandboxes that is never withheld, so that small jobs run on a machine whose memory
/// other programs use.
const NEVER_WITHHELD: u64 = 64 << 20;

/// The rest of the process may have at least this part of the memory, however large the operator
/// has made the part of sandboxes.
const REST_PART: u64 = 8;

/// What the kernel counts, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Measured {
    /// Memory of this process that no file has, and its page tables.
    process: u64,
    /// Memory of the machine that is free or can be made free.
    machine_free: u64,
}

impl Measured {
    /// # Errors
    /// When the kernel does not say.
    fn now() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let machine = fs::read_to_string("/proc/meminfo")?;
        Self::of(&status, &machine).ok_or_else(|| io::Error::other("a number is missing"))
    }

    fn of(status: &str, machine: &str) -> Option<Self> {
        let process = ["RssAnon:", "VmPTE:", "VmSwap:"].map(|name| bytes(status, name));
        let [anonymous, page_tables, swapped] = process;
        let process = anonymous? + page_tables? + swapped.unwrap_or(0);
        Some(Self { process, machine_free: bytes(machine, "MemAvailable:")? })
    }
}

/// The number of a line such as `VmPTE: 12 kB`.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// The bytes to withhold from sandboxes on a machine with so many.
fn withheld(measured: Measured, permits: PermitBytes, kept: u64, available: u64) -> u64 {
    let PermitBytes { max, taken, .. } = permits;
    let Measured { process, machine_free } = measured;
    let most = max.saturating_sub(NEVER_WITHHELD);
    let free = machine_free.min(available.saturating_sub(process));
    if free < available / FREE_PART {
        return most;
    }
    let of_rest = available.saturating_sub(max).max(available / REST_PART);
    process.saturating_sub(taken).saturating_sub(kept).saturating_sub(of_rest).min(most)
}

/// Looks until the runtime ends. `kept` is what ended sandboxes have left in memory, and `None`
/// after that.
pub(crate) async fn watch(permits: Permits, kept: impl Fn() -> Option<u64>, available: u64) {
    let mut was_short = false;
    while let Some(kept) = kept() {
        let bytes = permits.bytes();
        if permits.taken() > 0 || bytes.withheld > 0 {
            // A kernel that does not say is not Linux: nothing is withheld there.
            let Ok(measured) = Measured::now() else { return };
            let withheld = withheld(measured, bytes, kept, available);
            permits.withhold(withheld);
            if withheld > 0 && !was_short {
                let mib = withheld >> 20;
                warn!(
                    "{mib} MiB are withheld from sandboxes, since the machine is short of memory; jobs wait"
                );
            }
            was_short = withheld > 0;
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_kernel_is_read() {
        let status =
            "Name:\tx\nRssAnon:\t  100 kB\nRssFile:\t 7 kB\nVmPTE:\t 20 kB\nVmSwap:\t 3 kB\n";
        let machine = "MemTotal: 900 kB\nMemAvailable:   400 kB\n";
        let expected = Measured { process: 123 << 10, machine_free: 400 << 10 };
        assert_eq!(Measured::of(status, machine), Some(expected));
        assert_eq!(Measured::of("", machine), None);
        let now = Measured::now().unwrap();
        assert!(now.process > 1 << 20 && now.machine_free > 1 << 20, "{now:?}");
    }

    #[test]
    fn what_the_rest_has_beyond_its_part_is_withheld() {
        let withheld = |max, taken, kept, process, machine_free| {
            let permits = PermitBytes { max, taken, ..PermitBytes::default() };
            withheld(Measured { process, machine_free }, permits, kept, 16 * GIB)
        };
        // Sandboxes may have 10 of 16 GiB.
        assert_eq!(withheld(10 * GIB, 0, 0, GIB, 15 * GIB), 0);
        assert_eq!(withheld(10 * GIB, 5 * GIB, GIB, 12 * GIB, 4 * GIB), 0);
        assert_eq!(withheld(10 * GIB, 5 * GIB, GIB, 13 * GIB, 3 * GIB), GIB);
        assert_eq!(withheld(10 * GIB, 0, 0, 14 * GIB, 2 * GIB), 8 * GIB);
        // Others use the machine.
        let all = 10 * GIB - NEVER_WITHHELD;
        assert_eq!(withheld(10 * GIB, 0, 0, GIB, GIB - 1), all);
        assert_eq!(withheld(10 * GIB, 9 * GIB, 0, 15 * GIB + 1, 3 * GIB), all);
        assert_eq!(withheld(NEVER_WITHHELD, 0, 0, GIB, 0), 0);
        // The operator has given more than the machine has.
        assert_eq!(withheld(64 * GIB, 0, 0, 2 * GIB, 14 * GIB), 0);
        assert_eq!(withheld(64 * GIB, GIB, 0, 4 * GIB, 12 * GIB), GIB);
    }
}
