//! Builds JavaScript and TypeScript with the SDK's `gristmill-sdk build` that is installed in the
//! project.

use std::os::unix::fs::MetadataExt as _;
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

/// The SDK's command, in the packages of the project or of the npm workspace that it belongs to.
///
/// A directory further up is not searched: in one such as `/tmp` another user may have put
/// packages.
fn find(dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let dir = std::path::absolute(dir)?;
    let owner = std::fs::metadata(&dir)?.uid();
    let places = roots(&dir, |path| path.symlink_metadata().is_ok_and(|it| it.uid() == owner));
    let places = places.iter().map(|root| root.join("node_modules/.bin/gristmill-sdk"));
    Ok(places.into_iter().find(|path| path.exists()))
}

/// The project's root, which has the nearest `package.json`, and the root of its workspace: the
/// next one, if its `package.json` has workspaces. Only `dir` itself may have another owner.
fn roots(dir: &Path, has_same_owner: impl Fn(&Path) -> bool) -> Vec<&Path> {
    let description = |dir: &Path| dir.join("package.json");
    let is_root = |dir: &&Path| description(dir).is_file();
    let is_trusted =
        |root: &&Path| *root == dir || (has_same_owner(root) && has_same_owner(&description(root)));
    let mut found = dir.ancestors().filter(is_root).take_while(is_trusted);
    let project = found.next().unwrap_or(dir);
    let workspace = found.next().filter(|root| has_workspaces(&description(root)));
    [Some(project), workspace].into_iter().flatten().collect()
}

fn has_workspaces(description: &Path) -> bool {
    let text = std::fs::read(description).unwrap_or_default();
    let read = serde_json::from_slice::<serde_json::Value>(&text);
    read.is_ok_and(|description| description.get("workspaces").is_some())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_of_the_project_and_its_workspace_are_run() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        let inner = top.join("work/mill/src");
        std::fs::create_dir_all(&inner).unwrap();
        let describe = |dir: &str, text: &str| {
            std::fs::write(top.join(dir).join("package.json"), text).unwrap();
        };
        let found = |others: &[&str]| -> Vec<PathBuf> {
            let others: Vec<_> = others.iter().map(|path| top.join(path)).collect();
            let is_own = |path: &Path| !others.iter().any(|other| other == path);
            let roots = roots(&inner, is_own).into_iter();
            roots.map(|root| root.strip_prefix(top).unwrap().to_owned()).collect()
        };
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(found(&[]), paths(&["work/mill/src"]), "a directory that is no package");
        describe("work/mill", "{}");
        assert_eq!(found(&[]), paths(&["work/mill"]));
        describe("", r#"{ "workspaces": ["work/*"] }"#);
        assert_eq!(found(&[]), paths(&["work/mill", ""]));
        assert_eq!(found(&[""]), paths(&["work/mill"]), "the directory is another user's");
        assert_eq!(found(&["package.json"]), paths(&["work/mill"]), "the file is");
        assert_eq!(found(&["work/mill"]), paths(&["work/mill/src"]));
        describe("", "{}");
        assert_eq!(found(&[]), paths(&["work/mill"]), "it has no workspaces");
        describe("", r#"{ "workspaces": ["work/*"] }"#);
        describe("work", "{}");
        assert_eq!(found(&[]), paths(&["work/mill"]), "another package is between them");
    }
}
