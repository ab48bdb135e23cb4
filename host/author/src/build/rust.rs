//! Builds Rust with cargo, in the crate's own target directory.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::tool::{self, Missing};

/// The target of components.
const TARGET: &str = "wasm32-wasip2";

/// Cargo's message about each built crate.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// Builds the crate in `dir`; returns where cargo has put its component.
///
/// # Errors
/// [`Missing`] without cargo or the target; or that the build failed.
pub(super) async fn build(dir: &Path, profile: &str) -> anyhow::Result<PathBuf> {
    check_target(dir).await?;
    let manifest = dir.join("Cargo.toml");
    let manifest = manifest
        .canonicalize()
        .with_context(|| format!("there is no Rust crate: cannot read {}", manifest.display()))?;
    let mut cargo = tool::command("cargo")?;
    cargo
        .args(["build", "--lib", "--target", TARGET, "--profile", profile])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(dir)
        .stdout(Stdio::piped());
    let mut child = tool::start(cargo, no_rust)?;
    let messages = child.stdout.take().context("cargo has a standard output")?;
    let mut lines = BufReader::new(messages).lines();
    let mut found = None;
    while let Some(line) = lines.next_line().await.context("cannot read the output of cargo")? {
        // Other lines come from a build script or a macro.
        let Ok(message) = serde_json::from_str::<Message>(&line) else { continue };
        if message.reason == "compiler-artifact"
            && message.manifest_path.as_ref() == Some(&manifest)
        {
            let mut files = message.filenames.into_iter();
            found = files.find(|file| file.extension().is_some_and(|end| end == "wasm")).or(found);
        }
    }
    tool::check("cargo build", child.wait().await?)?;
    found.ok_or_else(|| {
        anyhow!(
            "cargo built no component: Cargo.toml needs `[lib]` with `crate-type = [\"cdylib\"]`"
        )
    })
}

async fn check_target(dir: &Path) -> anyhow::Result<()> {
    let mut rustc = tool::command("rustc")?;
    rustc.args(["--print", "target-libdir", "--target", TARGET]).current_dir(dir);
    let Some(output) = tool::ask(rustc).await? else { return Err(no_rust().into()) };
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && Path::new(printed.trim()).is_dir() {
        return Ok(());
    }
    if !output.status.success() && !String::from_utf8_lossy(&output.stderr).contains(TARGET) {
        bail!("rustc cannot be used: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Err(Missing::new(
        format!("Rust's target {TARGET} is missing"),
        format!("rustup target add {TARGET}"),
    )
    .into())
}

fn no_rust() -> Missing {
    Missing::new(
        "cargo and rustc are missing, which build handlers in Rust",
        format!(
            "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- --target {TARGET}"
        ),
    )
}
