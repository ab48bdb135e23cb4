//! A disk that is recorded, or that fails. This library is loaded by `LD_PRELOAD` and replaces
//! those functions of the C library that change files. Environment variables control it:
//!
//! * `DISK_DIR`: the library acts only on files below this directory; an absolute path without
//!   links.
//! * `DISK_LOG`: each change, and each sync, is appended to this file as a record ([`record`]), in
//!   the order in which they happened. One lock is held during each change, so that there is one
//!   order.
//! * `DISK_FAULT`: `CALL:ERRNO:N[:NAME]`: the Nth call (from 1) and all later ones fail with this
//!   error number. CALL is `write` or `sync`, and NAME is a part of the file's path. With
//!   `ENOSPC` a write of several bytes writes half of them instead of failing.
//! * `DISK_FAULT_WHILE`: calls fail only while this file exists.
//! * `DISK_SYNC_MS`: each sync takes this many milliseconds longer; other calls go on meanwhile.
//! * `CLOCK_FILE`: a file with the number of seconds by which the wall clock is ahead of the
//!   machine's clock. A `+` after the number means that the kernel reports a synchronised clock.
//! * `DISK_KILL`: `CALL:N[:NAME]`: the process is killed right after the Nth `write`, or instead of
//!   the Nth `sync`. The log ends with that write.
//!
//! The library makes the real calls as system calls, so that its functions do not call themselves.

#![allow(unsafe_code, reason = "it takes the place of functions of the C library")]
#![allow(clippy::missing_safety_doc, missing_docs, reason = "the C library documents them")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "this is test code: a broken assumption must stop the test"
)]

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The kind of a record, which is its first byte.
mod record {
    pub(super) const WRITE: u8 = 1;
    pub(super) const SET_LEN: u8 = 2;
    pub(super) const SYNC: u8 = 3;
    pub(super) const RENAME: u8 = 4;
    pub(super) const REMOVE: u8 = 5;
    pub(super) const LINK: u8 = 6;
    pub(super) const CREATE: u8 = 7;
}

struct Setup {
    dir: PathBuf,
    /// -1 without a log.
    log: c_int,
    fault: Option<Fault>,
    kill: Option<Fault>,
    sync_delay: Duration,
}

struct Fault {
    call: String,
    errno: c_int,
    from: u64,
    name: String,
    /// The path, with a zero byte at its end.
    only_while: Option<Vec<u8>>,
}

/// The numbers of calls so far that match `DISK_FAULT`, and that match `DISK_KILL`.
static CALLS: Mutex<Calls> = Mutex::new(Calls { faults: 0, kills: 0 });

struct Calls {
    faults: u64,
    kills: u64,
}

fn setup() -> Option<&'static Setup> {
    static SETUP: OnceLock<Option<Setup>> = OnceLock::new();
    SETUP
        .get_or_init(|| {
            let dir = PathBuf::from(std::env::var_os("DISK_DIR")?);
            let log = std::env::var("DISK_LOG").map_or(-1, |log| {
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
                let log = format!("{log}\0");
                // SAFETY: the path ends with a zero, and lives as long as the call.
                let log = unsafe {
                    libc::syscall(libc::SYS_openat, libc::AT_FDCWD, log.as_ptr(), flags, 0o600)
                };
                log as c_int
            });
            let fault = std::env::var("DISK_FAULT").ok().map(|text| {
                let mut parts = text.split(':');
                let mut next = || parts.next().unwrap_or_default().to_owned();
                let (call, errno, from, name) = (next(), next(), next(), next());
                let (errno, from) = (errno.parse().unwrap(), from.parse().unwrap());
                let only_while = std::env::var_os("DISK_FAULT_WHILE")
                    .map(|path| [path.as_bytes(), b"\0"].concat());
                Fault { call, errno, from, name, only_while }
            });
            let kill = std::env::var("DISK_KILL").ok().map(|text| {
                let mut parts = text.split(':');
                let mut next = || parts.next().unwrap_or_default().to_owned();
                let (call, from, name) = (next(), next(), next());
                Fault { call, errno: 0, from: from.parse().unwrap(), name, only_while: None }
            });
            let sync_ms = std::env::var("DISK_SYNC_MS").map_or(0, |ms| ms.parse().unwrap());
            let sync_delay = Duration::from_millis(sync_ms);
            Some(Setup { dir, log, fault, kill, sync_delay })
        })
        .as_ref()
}

/// The path of an open file, relative to the directory; `None` for a file that is not below it.
fn path_of(setup: &Setup, fd: c_int) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    below(setup, &path)
}

fn below(setup: &Setup, path: &Path) -> Option<PathBuf> {
    let path = path.strip_prefix(&setup.dir).ok()?;
    // A file without a name cannot be found after a crash.
    (!path.as_os_str().as_bytes().ends_with(b" (deleted)")).then(|| path.to_owned())
}

fn lock() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the call, and returns the error number if it must fail.
fn fails(setup: &Setup, calls: &mut Calls, call: &str, path: &Path) -> Option<c_int> {
    let fault = setup.fault.as_ref().filter(|fault| fault.call == call)?;
    if !path.to_string_lossy().contains(&fault.name) {
        return None;
    }
    calls.faults += 1;
    // SAFETY: the path ends with a zero, and lives as long as the call.
    let exists = |path: &Vec<u8>| unsafe {
        libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::F_OK) == 0
    };
    let is_on = fault.only_while.as_ref().is_none_or(exists);
    (calls.faults >= fault.from && is_on).then_some(fault.errno)
}

/// Counts the call, and kills the process if `DISK_KILL` names this call.
fn die_if_due(setup: &Setup, calls: &mut Calls, call: &str, path: &Path) {
    let kill = setup.kill.as_ref().filter(|kill| kill.call == call);
    if kill.is_none_or(|kill| !path.to_string_lossy().contains(&kill.name)) {
        return;
    }
    calls.kills += 1;
    if kill.is_some_and(|kill| kill.from == calls.kills) {
        // SAFETY: numbers only.
        unsafe { libc::syscall(libc::SYS_kill, libc::getpid(), libc::SIGKILL) };
    }
}

fn set_errno(errno: c_int) {
    // SAFETY: the C library's own way to the number of this thread.
    unsafe { *libc::__errno_location() = errno };
}

fn log(setup: &Setup, kind: u8, path: &Path, number: u64, data: &[u8]) {
    if setup.log < 0 {
        return;
    }
    let path = path.as_os_str().as_bytes();
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
    bytes.extend_from_slice(path);
    bytes.extend_from_slice(data);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        // SAFETY: the bytes live as long as the call.
        let written =
            unsafe { libc::syscall(libc::SYS_write, setup.log, rest.as_ptr(), rest.len()) };
        assert!(written > 0, "the log of the disk cannot be written");
        rest = &rest[written as usize..];
    }
}

/// A write at `at`, or at the file's own position.
unsafe fn write_at(fd: c_int, bytes: *const c_void, count: usize, at: Option<i64>) -> isize {
    let really = |count: usize| match at {
        // SAFETY: the caller's promise.
        Some(at) => unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, count, at) },
        // SAFETY: the caller's promise.
        None => unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) },
    };
    let Some((setup, path)) = setup().and_then(|setup| Some((setup, path_of(setup, fd)?))) else {
        return really(count) as isize;
    };
    let mut calls = lock();
    let fault = fails(setup, &mut calls, "write", &path);
    let count = match fault {
        Some(libc::ENOSPC) => count / 2,
        Some(errno) => {
            set_errno(errno);
            return -1;
        }
        None => count,
    };
    if count == 0 && fault.is_some() {
        set_errno(libc::ENOSPC);
        return -1;
    }
    let written = really(count);
    if written > 0 {
        // SAFETY: asks where the file's position is.
        let position = || unsafe { libc::syscall(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) };
        let at = at.unwrap_or_else(|| position() - written);
        // SAFETY: the caller promises the buffer; the system has just read `written` bytes of it.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), written as usize) };
        log(setup, record::WRITE, &path, at as u64, bytes);
        die_if_due(setup, &mut calls, "write", &path);
    }
    written as isize
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { write_at(fd, bytes, count, None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, bytes: *const c_void, count: usize, at: i64) -> isize {
    // SAFETY: the caller's promise.
    unsafe { write_at(fd, bytes, count, Some(at)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, count: usize, at: i64) -> isize {
    // SAFETY: the caller's promise.
    unsafe { write_at(fd, bytes, count, Some(at)) }
}

fn set_len(fd: c_int, len: i64) -> c_int {
    // SAFETY: numbers only.
    let really = || unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) } as c_int;
    let Some((setup, path)) = setup().and_then(|setup| Some((setup, path_of(setup, fd)?))) else {
        return really();
    };
    let _calls = lock();
    let answer = really();
    if answer == 0 {
        log(setup, record::SET_LEN, &path, len as u64, &[]);
    }
    answer
}

#[unsafe(no_mangle)]
pub extern "C" fn ftruncate(fd: c_int, len: i64) -> c_int {
    set_len(fd, len)
}

#[unsafe(no_mangle)]
pub extern "C" fn ftruncate64(fd: c_int, len: i64) -> c_int {
    set_len(fd, len)
}

fn sync(fd: c_int, call: c_long) -> c_int {
    // SAFETY: numbers only.
    let really = || unsafe { libc::syscall(call, fd) } as c_int;
    let Some((setup, path)) = setup().and_then(|setup| Some((setup, path_of(setup, fd)?))) else {
        return really();
    };
    std::thread::sleep(setup.sync_delay);
    let mut calls = lock();
    if let Some(errno) = fails(setup, &mut calls, "sync", &path) {
        set_errno(errno);
        return -1;
    }
    die_if_due(setup, &mut calls, "sync", &path);
    let answer = really();
    if answer == 0 {
        log(setup, record::SYNC, &path, 0, &[]);
    }
    answer
}

#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd, libc::SYS_fsync)
}

#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd, libc::SYS_fdatasync)
}

/// A path that the caller passed.
unsafe fn named(path: *const c_char) -> Option<(&'static Setup, PathBuf)> {
    let setup = setup()?;
    // SAFETY: the caller's promise: it ends with a zero.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    Some((setup, below(setup, &std::path::absolute(path).ok()?)?))
}

/// Opens a file. With `O_CREAT` it logs a creation, even if the file existed: the readers of the
/// log treat both cases alike.
unsafe fn open_file(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    let _calls = (flags & libc::O_CREAT != 0).then(lock);
    // SAFETY: the caller's promise.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) } as c_int;
    if fd >= 0
        && flags & libc::O_CREAT != 0
        // SAFETY: the caller's promise.
        && let Some((setup, path)) = unsafe { named(path) }
    {
        log(setup, record::CREATE, &path, 0, &[]);
    }
    fd
}

// In C the argument `mode` exists only with `O_CREAT`; otherwise it is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_file(path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_file(path, flags, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let _calls = lock();
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_rename, from, to) } as c_int;
    // SAFETY: the caller's promise.
    unsafe { log_two_names(answer, record::RENAME, from, to) };
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    assert!(from_dir == libc::AT_FDCWD && to_dir == libc::AT_FDCWD, "nobody asks for more");
    let _calls = lock();
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_linkat, from_dir, from, to_dir, to, flags) };
    // SAFETY: the caller's promise.
    unsafe { log_two_names(answer as c_int, record::LINK, from, to) };
    answer as c_int
}

unsafe fn log_two_names(answer: c_int, kind: u8, from: *const c_char, to: *const c_char) {
    // SAFETY: the caller's promise.
    let named = unsafe { (named(from), named(to)) };
    if answer == 0
        && let (Some((setup, from)), Some((_, to))) = named
    {
        log(setup, kind, &from, 0, to.as_os_str().as_bytes());
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    let _calls = lock();
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_unlink, path) } as c_int;
    // SAFETY: the caller's promise.
    let named = unsafe { named(path) };
    if answer == 0
        && let Some((setup, path)) = named
    {
        log(setup, record::REMOVE, &path, 0, &[]);
    }
    answer
}

/// The wall clock's lead in seconds, and whether the kernel reports it as synchronised; `None`
/// without a file. Reads the file without allocating, since the allocator may read the time.
fn clock_lead() -> Option<(i64, bool)> {
    // SAFETY: the name ends with a zero; the result lives as long as the environment, which
    // never changes.
    let path = unsafe { libc::getenv(c"CLOCK_FILE".as_ptr()) };
    if path.is_null() {
        return None;
    }
    let mut bytes = [0_u8; 32];
    // SAFETY: the path ends with a zero, and the bytes live as long as the calls.
    let count = unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY);
        let count = libc::syscall(libc::SYS_read, fd, bytes.as_mut_ptr(), bytes.len());
        libc::syscall(libc::SYS_close, fd);
        count
    };
    let text = str::from_utf8(bytes.get(..usize::try_from(count).ok()?)?).ok()?.trim();
    let seconds = text.trim_end_matches('+');
    Some((seconds.parse().ok()?, seconds.len() < text.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(id: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_clock_gettime, id, time) } as c_int;
    if id == libc::CLOCK_REALTIME
        && answer == 0
        && let Some((lead, _)) = clock_lead()
    {
        // SAFETY: the call above has filled it.
        unsafe { (*time).tv_sec += lead };
    }
    answer
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adjtimex(asked: *mut libc::timex) -> c_int {
    match clock_lead() {
        Some((_, true)) => libc::TIME_OK,
        Some((_, false)) => libc::TIME_ERROR,
        // SAFETY: the caller's promise.
        None => unsafe { libc::syscall(libc::SYS_adjtimex, asked) as c_int },
    }
}
