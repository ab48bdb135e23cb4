//! What a process has spent: processor time, bytes written, and syncs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Processes of database servers that this process has started; their children count too.
pub static SERVERS: parking_lot::Mutex<Vec<u32>> = parking_lot::Mutex::new(Vec::new());

static SYNCS: AtomicU64 = AtomicU64::new(0);

macro_rules! counted {
    ($($name:ident, $number:expr;)*) => {$(
        /// Replaces the function of the C library for this program and all that is linked into it.
        ///
        /// # Safety
        /// As safe as the function that it replaces.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: libc::c_int) -> libc::c_int {
            SYNCS.fetch_add(1, Relaxed);
            unsafe { libc::syscall($number, fd) as libc::c_int }
        }
    )*};
}

counted! {
    fsync, libc::SYS_fsync;
    fdatasync, libc::SYS_fdatasync;
}

/// The counters of this process since its start.
pub struct Counters {
    pub cpu_us: f64,
    /// Of the threads that are neither the main thread nor tokio's: the writer and the engine's
    /// own.
    pub engine_us: f64,
    /// Of the servers in [`SERVERS`]; not part of the other two.
    pub server_us: f64,
    /// Bytes that were passed to write calls.
    pub written: u64,
    /// The kernel's count of dirtied pages; it counts whole large folios.
    pub dirtied: u64,
    pub syncs: u64,
}

impl Counters {
    pub fn now() -> Self {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        let io = std::fs::read_to_string("/proc/self/io").unwrap();
        let field = |name| {
            let value = io.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            value.trim().parse().unwrap()
        };
        Self {
            cpu_us: time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3,
            engine_us: engine_us(),
            server_us: server_us(),
            written: field("wchar:"),
            dirtied: field("write_bytes:"),
            syncs: SYNCS.load(Relaxed),
        }
    }

    pub fn since(&self, before: &Self) -> Self {
        Self {
            cpu_us: self.cpu_us - before.cpu_us,
            engine_us: self.engine_us - before.engine_us,
            server_us: self.server_us - before.server_us,
            written: self.written - before.written,
            dirtied: self.dirtied - before.dirtied,
            syncs: self.syncs - before.syncs,
        }
    }
}

fn engine_us() -> f64 {
    let own = std::process::id().to_string();
    let mut sum = 0.0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if task.file_name().to_str() == Some(&own) || name.starts_with("tokio") {
            continue;
        }
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let nanos = stat.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        sum += nanos.unwrap_or_default() / 1e3;
    }
    sum
}

/// The processor time of the servers' living processes. A background process that ended takes its
/// time with it.
fn server_us() -> f64 {
    let servers = SERVERS.lock();
    let mut sum = 0.0;
    if servers.is_empty() {
        return sum;
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let parent = after_name.split_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok());
        if servers.contains(&id) || parent.is_some_and(|parent| servers.contains(&parent)) {
            let stat = std::fs::read_to_string(process.path().join("schedstat")).unwrap_or_default();
            let nanos = stat.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
            sum += nanos.unwrap_or_default() / 1e3;
        }
    }
    sum
}

/// Resident memory.
pub fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    field.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}
