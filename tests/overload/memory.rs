//! What a host holds of memory and files, seen from outside.

use std::fs;

use gristmill_tests::TestHost;

pub(crate) const MIB: u64 = 1 << 20;

/// Memory that the store may use by its settings: 64 MiB on their way to the disk, 64 MiB of
/// payloads and 32 MiB of chunks for those who ask next.
pub(crate) const STORE_BYTES: u64 = (64 + 64 + 32) * MIB;

/// What the allocator keeps of what was freed, and all that is small.
pub(crate) const SLACK_BYTES: u64 = 96 * MIB;

/// Bytes that are resident now.
pub(crate) fn resident(host: &TestHost) -> u64 {
    status(host, "VmRSS:")
}

/// The most that have been resident since the host started.
pub(crate) fn peak(host: &TestHost) -> u64 {
    status(host, "VmHWM:")
}

/// Prints the peak and asserts that it is at most this much above what the idle host had.
pub(crate) fn peak_is_within(host: &TestHost, idle: u64, bound: u64) {
    let grown = peak(host).saturating_sub(idle);
    println!(
        "peak RSS: {} MiB, {} MiB above the idle host, bound {} MiB",
        peak(host) / MIB,
        grown / MIB,
        bound / MIB
    );
    assert!(grown <= bound, "{grown} B of memory, bound {bound}");
}

/// Files that are open, connections among them.
pub(crate) fn open_files(host: &TestHost) -> usize {
    fs::read_dir(format!("/proc/{}/fd", host.pid())).unwrap().count()
}

fn status(host: &TestHost, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
