//! The host's memory and files, observed from outside.

use std::fs;

use gristmill_tests::TestHost;

pub(crate) const MIB: u64 = 1 << 20;

/// Memory that the store may use by its settings: 64 MiB of pending writes, 64 MiB of cached
/// payloads and 32 MiB of cached chunks.
pub(crate) const STORE_BYTES: u64 = (64 + 64 + 32) * MIB;

/// The allocator's freed memory, and small objects. Bodies of 20 MB leave large holes: the same
/// program peaked at 722 to 808 MiB in six runs of `large_bodies_at_once`, whose other bounds are
/// 712 MiB.
pub(crate) const SLACK_BYTES: u64 = 160 * MIB;

/// Prints the peak and asserts that it is at most this much above the idle host's memory.
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
