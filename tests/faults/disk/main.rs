//! Faults of the disk: the power fails, space runs out, a write or a sync fails.
//!
//! A preloaded library (`shim`) intercepts the file calls of a process. It records every change and
//! every sync, from which tests compute the possible contents of a disk after a loss of power
//! ([`simulated`]), or makes calls fail. The host itself is unchanged.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this is test code: a broken assumption must stop the test"
)]

mod clock;
mod faults;
mod full;
mod ledger;
mod log;
mod power;
mod simulated;
mod upgrade;
mod workload;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The preloaded library. Cargo builds it as an example when all tests are built; otherwise this
/// builds it.
fn shim() -> &'static Path {
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
