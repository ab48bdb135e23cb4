//! The machine's memory for sandboxes, when the operator does not set it, and for jobs.
//!
//! Linux only: the smallest limit of the host's control groups, or else the machine's memory. It is
//! unknown elsewhere, and where neither can be read. Read once, at the start.

use std::fs;
use std::path::{Path, PathBuf};

use gristmill_core::deploy::endpoint::EndpointSettings;
use gristmill_core::limits::QUEUE_JOBS_MAX;

/// A number of jobs that a part of the machine's memory has room for.
struct JobsInMemory {
    /// The divisor of the available memory.
    divisor: u64,
    /// About the memory of a job.
    job_bytes: u64,
    /// Jobs for which there is always room.
    min: u64,
    /// The number when the memory is unknown.
    default: usize,
}

/// Waiting jobs, whose inputs are on the disk. At least 20 MB.
const WAITING_JOBS: JobsInMemory =
    JobsInMemory { divisor: 8, job_bytes: 200, min: 100_000, default: QUEUE_JOBS_MAX };

/// Jobs in any status that are not archived; an ended job, whose result is on the disk, takes most:
/// 420 to 477 bytes were measured, with and without an error. At least 96 MB.
const JOBS: JobsInMemory =
    JobsInMemory { divisor: 4, job_bytes: 512, min: 200_000, default: 2 * QUEUE_JOBS_MAX };

impl JobsInMemory {
    fn within(&self, available: Option<u64>) -> usize {
        let jobs = available.map(|bytes| (bytes / self.divisor / self.job_bytes).max(self.min));
        jobs.and_then(|jobs| usize::try_from(jobs).ok()).unwrap_or(self.default)
    }
}

/// The default memory of all sandboxes together, in bytes: five eighths of the available memory. A
/// quarter is for jobs, a sixteenth for webhooks, and the rest for the host itself, whose caches
/// and buffers have separate bounds. Never less than the default of one endpoint.
pub(super) fn default_budget() -> u64 {
    budget_of(available_here())
}

fn budget_of(available: Option<u64>) -> u64 {
    let one_job = EndpointSettings::MEMORY_MIB.default << 20;
    // Unknown: the most that one job may have, so that every endpoint can run.
    let budget = available.map_or(EndpointSettings::MEMORY_MIB.max << 20, |bytes| bytes / 8 * 5);
    budget.max(one_job)
}

/// Most waiting jobs of the host: those for which an eighth of the available memory has room, which
/// is 5,300,000 on a machine of 8 GiB.
pub(super) fn waiting_jobs_max() -> usize {
    WAITING_JOBS.within(available_here())
}

/// Most jobs of the host in memory, in any status: those for which a quarter of the available
/// memory has room when all of them have ended, which is 4,400,000 on a machine of 8 GiB.
pub(super) fn jobs_max() -> usize {
    JOBS.within(available_here())
}

/// Most bytes of memory for webhooks: a sixteenth of the available memory, and at least 16 MiB; 512
/// MiB when the memory is unknown.
pub(super) fn webhook_bytes_max() -> u64 {
    available_here().map_or(512 << 20, |bytes| (bytes / 16).max(16 << 20))
}

/// Most bytes that callers without a valid key make the host keep: a sixty-fourth of the available
/// memory, at least 8 MiB and at most 256 MiB, which is also the bound when the memory is unknown.
pub(super) fn unauthenticated_bytes_max() -> usize {
    unauthenticated_part(available_here())
}

fn unauthenticated_part(available: Option<u64>) -> usize {
    let most = 256 << 20;
    let bytes = available.map_or(most, |bytes| (bytes / 64).clamp(8 << 20, most));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Bytes that this process can have, if that is known.
pub(super) fn available_here() -> Option<u64> {
    available(Path::new("/"))
}

/// Bytes that this process can have, with the file system's root at `root`.
fn available(root: &Path) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| total(&text));
    [machine, group_limit(root)].into_iter().flatten().min()
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// The smallest limit of the process's control group and its ancestors. No limit is a number larger
/// than any machine in version 1, and `max` in version 2.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().flat_map(|line| limits_of(root, line)).min()
}

fn limits_of(root: &Path, line: &str) -> Vec<u64> {
    let mut parts = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next())
    else {
        return Vec::new();
    };
    let (tree, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        "memory" => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    let tree = root.join(tree);
    let group: PathBuf = tree.join(group.trim_start_matches('/'));
    let read = |dir: &Path| fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok();
    // In a container the path may be that of the machine, and the tree the container's own.
    group.ancestors().take_while(|dir| dir.starts_with(&tree)).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn the_smallest_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(available(root), None);
        write(root, "proc/meminfo", "MemFree:  1 kB\nMemTotal:       16384 kB\nSwapTotal: 9 kB\n");
        assert_eq!(available(root), Some(16 * MIB));
        write(root, "proc/self/cgroup", "1:cpu:/x\n0::/a/b\n");
        assert_eq!(available(root), Some(16 * MIB));
        write(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(available(root), Some(16 * MIB));
        write(root, "sys/fs/cgroup/a/memory.max", "8388608\n");
        assert_eq!(available(root), Some(8 * MIB));
        write(root, "proc/self/cgroup", "4:memory:/c\n0::/\n");
        assert_eq!(available(root), Some(16 * MIB));
        write(root, "sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(available(root), Some(16 * MIB));
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "4194304\n");
        assert_eq!(available(root), Some(4 * MIB));
        for nonsense in ["", ":", "0::", "0:memory", "::../../..", "a:memory:/\0"] {
            write(root, "proc/self/cgroup", nonsense);
            assert!(available(root) <= Some(16 * MIB), "{nonsense}");
        }
    }

    #[test]
    fn five_eighths_are_for_sandboxes_and_one_always_fits() {
        assert_eq!(budget_of(Some(16 << 30)), 10 << 30);
        assert_eq!(budget_of(Some(100 * MIB)), 256 * MIB);
        assert_eq!(budget_of(None), 4_096 * MIB);
        assert!(default_budget() >= 256 * MIB);
    }

    #[test]
    fn a_sixty_fourth_is_for_callers_without_a_key() {
        for (mib, expected) in
            [(Some(64 << 10), 256), (Some(2 << 10), 32), (Some(100), 8), (None, 256)]
        {
            let bytes = unauthenticated_part(mib.map(|mib: u64| mib * MIB));
            assert_eq!(bytes as u64, expected * MIB, "{mib:?}");
        }
    }

    #[test]
    fn an_eighth_is_for_waiting_jobs() {
        assert_eq!(WAITING_JOBS.within(Some(8 << 30)), 5_368_709);
        assert_eq!(WAITING_JOBS.within(Some(100 * MIB)), 100_000);
        assert_eq!(WAITING_JOBS.within(None), QUEUE_JOBS_MAX);
    }

    #[test]
    fn a_quarter_is_for_all_jobs() {
        assert_eq!(JOBS.within(Some(8 << 30)), 4_194_304);
        assert_eq!(JOBS.within(Some(100 * MIB)), 200_000);
        assert_eq!(JOBS.within(None), 2 * QUEUE_JOBS_MAX);
    }
}
