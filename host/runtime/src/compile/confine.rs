//! The confinement of the compiling process. Before its compiler reads a component, the process
//! gives up files, the network, other programs and other processes for good. A component that
//! exploits a bug of the compiler can then neither read a key, nor write a file of the host, nor
//! send data.
//!
//! The kernel offers two layers, and each alone prevents most of this. Landlock takes away files,
//! connections and signals. A seccomp filter permits only the system calls that compiling needs,
//! mostly for memory and threads. If the kernel lacks one layer, the other still applies, and
//! [`Confinement`] names the missing one.
//!
//! **Bounds.** Descriptors that are open already stay usable. The host still runs the result of the
//! process as machine code: confinement protects the host from the compiler's process, not from its
//! result.
//!
//! **Cost.** Up to 5 ms for each compile, measured in the development profile on a busy machine.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};
use serde::{Deserialize, Serialize};

/// The newest version of Landlock whose rights are requested; older kernels apply the rights that
/// they know.
const LANDLOCK: ABI = ABI::V7;

/// System calls that concern memory, threads, time, the end of the process, and files that are open
/// already.
const ALWAYS: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// System calls for the files of a cache; Landlock restricts which files.
const WITH_CACHE: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
    libc::SYS_utimensat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_flock,
    libc::SYS_readlinkat,
];

/// Older names of the same calls, which the C library still uses on this processor.
#[cfg(target_arch = "x86_64")]
const WITH_CACHE_OLD: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_mkdir,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_readlink,
];
#[cfg(not(target_arch = "x86_64"))]
const WITH_CACHE_OLD: &[i64] = &[];

/// The flags that make a new thread of this process, not a new process.
const THREAD_FLAGS: i32 = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND;

/// `prctl` that names a thread, or a region of memory.
const PR_SET_VMA: i32 = 0x53_56_4d_41;

/// The outcome of confining this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// The layers that the kernel lacks or refuses, each with the reason; empty when the process is
    /// confined.
    pub(crate) missing: Vec<String>,
}

/// Confines this process with all its threads and children. Call it while the process has one
/// thread. The cache's directory stays usable; no other file can be opened.
pub(crate) fn confine(cache: Option<&Path>) -> Confinement {
    let mut missing = Vec::new();
    let mut note = |layer: &str, outcome: Result<(), String>| {
        missing.extend(outcome.err().map(|reason| format!("{layer}: {reason}")));
    };
    note("no_new_privs", forbid_privileges());
    note("Landlock", landlock(cache));
    note("seccomp", seccomp(cache.is_some()));
    Confinement { missing }
}

fn forbid_privileges() -> Result<(), String> {
    rustix::thread::set_no_new_privs(true).map_err(|error| error.to_string())
}

/// Takes away the network, signals to other processes, and all files except those below one
/// directory.
fn landlock(directory: Option<&Path>) -> Result<(), String> {
    let restrict = || -> Result<RulesetStatus, RulesetError> {
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .handle_access(AccessNet::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?
            .create()?;
        // A directory that cannot be opened is not used either.
        if let Some(directory) = directory.and_then(|path| PathFd::new(path).ok()) {
            let rights = AccessFs::from_all(LANDLOCK) & !AccessFs::Execute;
            ruleset = ruleset.add_rule(PathBeneath::new(directory, rights))?;
        }
        Ok(ruleset.restrict_self()?.ruleset)
    };
    match restrict() {
        // Older versions lack rights that seccomp takes away too.
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => Ok(()),
        Ok(RulesetStatus::NotEnforced) => Err("the kernel does not have it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Permits only the system calls that compiling needs. All others return `ENOSYS`, so that the C
/// library uses an older call if there is one.
fn seccomp(has_cache: bool) -> Result<(), String> {
    let program = filter(has_cache).map_err(|error| error.to_string())?;
    apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

fn filter(has_cache: bool) -> Result<BpfProgram, seccompiler::BackendError> {
    let argument = |index, operator, value: i32| {
        let value = u64::from(value.unsigned_abs());
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    let of_cache = [WITH_CACHE, WITH_CACHE_OLD].concat();
    let of_cache = of_cache.iter().filter(|_| has_cache);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALWAYS.iter().chain(of_cache).map(|&call| (call, vec![])).collect();
    let is_thread = SeccompCmpOp::MaskedEq(u64::from(THREAD_FLAGS.unsigned_abs()));
    let this_process = rustix::process::getpid().as_raw_pid();
    rules.extend([
        // Not `clone3`, whose flags a filter cannot see.
        (libc::SYS_clone, vec![argument(0, is_thread, THREAD_FLAGS)?]),
        // A process that aborts sends itself a signal.
        (libc::SYS_tgkill, vec![argument(0, SeccompCmpOp::Eq, this_process)?]),
        // Reading limits, not setting them, and none of another process.
        (libc::SYS_prlimit64, vec![reads_own_limit()?]),
        (
            libc::SYS_prctl,
            vec![
                argument(0, SeccompCmpOp::Eq, libc::PR_SET_NAME)?,
                argument(0, SeccompCmpOp::Eq, PR_SET_VMA)?,
            ],
        ),
    ]);
    if has_cache {
        let harmless = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC];
        let harmless = harmless.map(|command| argument(1, SeccompCmpOp::Eq, command));
        rules.insert(libc::SYS_fcntl, harmless.into_iter().collect::<Result<_, _>>()?);
    }
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, missing, SeccompAction::Allow, arch)?.try_into()
}

fn reads_own_limit() -> Result<SeccompRule, seccompiler::BackendError> {
    let is_zero =
        |index| SeccompCondition::new(index, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0);
    SeccompRule::new(vec![is_zero(0)?, is_zero(2)?])
}

#[cfg(test)]
#[path = "confine_tests.rs"]
mod tests;
