//! Builds the sample handlers, so that `cargo test` alone is enough to run the whole system.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-wasip2";

fn main() -> Result<(), Box<dyn Error>> {
    let tests = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets this")?);
    let root = tests.parent().ok_or("the package lies in the repository")?;
    let handlers = root.join("handlers");
    watch(root, &handlers)?;
    check_target()?;

    let target_dir = handlers.join("target");
    let mut cargo = Command::new(env::var_os("CARGO").ok_or("cargo sets this")?);
    cargo
        .args(["build", "--release", "--locked", "--target", TARGET])
        .current_dir(&handlers)
        .env("CARGO_TARGET_DIR", &target_dir);
    // The outer build's flags, wrappers and profile are not for the guests.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_outer_build) {
            cargo.env_remove(&name);
        }
    }
    cargo.env("CARGO_TARGET_DIR", &target_dir);
    let status = cargo.status()?;
    if !status.success() {
        return Err(
            format!("the handlers in {} did not build: {status}", handlers.display()).into()
        );
    }
    let built = target_dir.join(TARGET).join("release");
    println!("cargo::rustc-env=GRISTMILL_GUESTS_DIR={}", built.display());
    Ok(())
}

/// Runs again when a guest may have changed, but not because of this script's own output.
fn watch(root: &Path, handlers: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    for folder in ["guest-sdk", "wit"] {
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
    }
    for entry in handlers.read_dir()? {
        let path = entry?.path();
        if !path.ends_with("target") {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    Ok(())
}

fn check_target() -> Result<(), Box<dyn Error>> {
    let rustc = env::var_os("RUSTC").ok_or("cargo sets this")?;
    let output = Command::new(rustc).args(["--print", "sysroot"]).output()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    if sysroot.join("lib/rustlib").join(TARGET).is_dir() {
        return Ok(());
    }
    Err(format!("the target {TARGET} is missing: run `rustup target add {TARGET}`").into())
}

fn is_of_outer_build(name: &str) -> bool {
    const KEPT: [&str; 5] =
        ["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR"];
    let is_kept = KEPT.iter().any(|kept| name.starts_with(kept));
    let is_cargos = name.starts_with("CARGO_") || name.starts_with("CLIPPY_");
    let is_rustcs = name == "RUSTC" || name.starts_with("RUSTC_") || name.starts_with("RUSTFLAGS");
    (is_cargos && !is_kept) || is_rustcs
}
