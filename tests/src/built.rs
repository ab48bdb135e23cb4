//! The programs that tests start: the binary under test, and the library that replaces its disk and
//! its clock.
//!
//! What cargo does not build before a suite is built here, once for each process, so that no test
//! runs a program of older sources; this takes half a second when there is nothing to build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The binary under test. Cargo builds it before the suites of this package, but not before those
/// of other packages.
///
/// # Panics
/// When it cannot be built.
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    const NAME: &str = "gristmill-under-test";
    let built = BINARY.get_or_init(|| {
        let profile = profile();
        let is_of_another_package = std::env::var_os("CARGO_MANIFEST_DIR")
            .is_some_and(|package| package != env!("CARGO_MANIFEST_DIR"));
        if is_of_another_package {
            let profile_name = match profile.file_name().unwrap().to_str().unwrap() {
                "debug" => "dev",
                name => name,
            };
            let options = ["-p", "gristmill-tests", "--bin", NAME, "--profile", profile_name];
            build(&options, profile.parent().unwrap());
        }
        let binary = profile.join(NAME);
        assert!(binary.is_file(), "no {}: build gristmill-tests first", binary.display());
        binary
    });
    built.clone()
}

/// The library of `tests/faults/disk/shim`, for `LD_PRELOAD`. It is in a target directory of its
/// own, which no other cargo holds while tests run.
///
/// # Panics
/// When it cannot be built.
pub fn disk_shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let target = profile().with_file_name("disk-shim");
        build(&["-p", "gristmill-disk-shim"], &target);
        target.join("debug/libdisk_shim.so")
    })
}

/// The directory of this process's cargo profile, such as `target/debug`: test programs are in
/// `deps` below it.
fn profile() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

fn build(options: &[&str], target: &Path) {
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--locked"]);
    let status = build.args(options).arg("--target-dir").arg(target).status().unwrap();
    assert!(status.success(), "this cannot be built: {options:?}");
}
