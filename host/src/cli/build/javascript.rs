//! Builds JavaScript and TypeScript with the SDK's `gristmill-sdk build` that is installed in the
//! project.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::tool::{self, Missing};

/// The command that installs the packages for a project's builds.
pub(crate) const INSTALL: &str = "npm install";

/// The JavaScript engine in the component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// Small, built in seconds.
    Quickjs,
    /// Firefox's engine, with the web platform.
    Starlingmonkey,
}

impl Engine {
    fn as_str(self) -> &'static str {
        match self {
            Self::Quickjs => "quickjs",
            Self::Starlingmonkey => "starlingmonkey",
        }
    }
}

/// Builds `output` of the project in `dir`.
///
/// # Errors
/// [`Missing`] without Node.js, npm or the packages; or that the build failed.
pub(super) async fn build(dir: &Path, output: &Path, engine: Engine) -> anyhow::Result<()> {
    if !tool::is_there("node").await? {
        return Err(no_node().into());
    }
    let Some(builder) = find(dir)? else {
        if !tool::is_there("npm").await? {
            return Err(no_npm().into());
        }
        return Err(Missing::new(
            "the project's packages are not installed in node_modules",
            INSTALL,
        )
        .into());
    };
    let mut command = tool::command("node")?;
    command.arg(builder).args(["build", ".", "--engine", engine.as_str(), "-o"]).arg(output);
    command.current_dir(dir);
    tool::run(command, no_node).await
}

/// The SDK's command, in the project's packages or those of a workspace around it.
fn find(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let dir = std::path::absolute(dir)?;
    let places = dir.ancestors().map(|dir| dir.join("node_modules/.bin/gristmill-sdk"));
    Ok(places.into_iter().find(|path| path.exists()))
}

fn no_node() -> Missing {
    Missing::new(
        "Node.js 20.11 or newer is missing, which builds handlers in JavaScript",
        "apt install nodejs npm    # or from https://nodejs.org",
    )
}

fn no_npm() -> Missing {
    Missing::new("npm is missing, which brings the project's packages", "apt install npm")
}
