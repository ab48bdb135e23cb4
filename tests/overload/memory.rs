//! What a host holds of memory and files, seen from outside.

use std::fs;

use gristmill_tests::TestHost;

pub(crate) const MIB: u64 = 1 << 20;

/// Memory that the store may use by its settings: 64 MiB on their way to the disk, 64 MiB of
/// payloads and 32 MiB of chunks for those who ask next.
pub(crate) const STORE_BYTES: u64 = (64 + 64 + 32) * MIB;

/// What the allocator keeps of what was freed, and all that is small.
pub(crate) const SLACK_BYTES: u64 = 96 * MIB;

/// Prints the peak and asserts that it is at most this much above what the idle host had.
pub(crate) fn peak_is_within(host: &TestHost, idle: u64, bound: u64) {
    let grown = host.peak_memory().saturating_sub(idle);
    println!(
        "peak RSS: {} MiB, {} MiB above the idle host, bound {} MiB",
        host.peak_memory() / MIB,
        grown / MIB,
        bound / MIB
    );
    assert!(grown <= bound, "{grown} B of memory, bound {bound}");
}

/// Files that are open, connections among them.
pub(crate) fn open_files(host: &TestHost) -> usize {
    fs::read_dir(format!("/proc/{}/fd", host.pid())).unwrap().count()
}
