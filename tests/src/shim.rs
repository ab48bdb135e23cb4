//! A library that replaces the disk and the clock of a host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library of `tests/faults/disk/shim`, for `LD_PRELOAD`. Cargo builds it as an example when all tests
/// are built; otherwise this builds it.
///
/// # Panics
/// When it cannot be built.
pub fn disk_shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let [_, profile, target, ..] = *test.ancestors().skip(1).collect::<Vec<_>>() else {
            panic!("{} is not below a target directory", test.display())
        };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "-p", "gristmill-tests"]);
        build.args(["--example", "disk_shim", "--target-dir"]).arg(target);
        assert!(build.status().unwrap().success(), "the shim cannot be built");
        profile.join("examples/libdisk_shim.so")
    })
}

/// Sets the lead of the wall clock in seconds, in the file that `CLOCK_FILE` names. Replaces the file at once, since
/// a host may read it at any time.
///
/// # Panics
/// When the file cannot be written.
pub fn set_clock_lead(file: &Path, lead: &str) {
    let next = file.with_extension("next");
    fs::write(&next, lead).unwrap();
    fs::rename(next, file).unwrap();
}
