//! `gristmill upgrade-sdk`: renews the copy of the SDK below `vendor/` that `gristmill new` wrote.
//!
//! The copy has a list of its files with their hashes, in the format of `sha256sum`. A file that
//! has neither its hash nor the new content was changed by hand.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use gristmill_commands::output;
use serde::Deserialize;

use super::files::{self, File, SUMS, VENDOR, hash};
use super::kind::NewKind;
use crate::build::{JAVASCRIPT_INSTALL, PYTHON_INSTALL, open};
use crate::project::Language;

/// Renew the SDK of a project: its copy in `vendor/` becomes that of this program.
///
/// No other file of the project changes. A copy that was changed by hand is refused.
#[derive(Debug, Args)]
pub struct UpgradeSdkArgs {
    /// The project [default: the current directory].
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Replace a copy that was changed by hand, too. The changes are lost.
    #[arg(long)]
    force: bool,
}

/// The changes of a copy, by the paths below `vendor/`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    /// Whether the copy has the list of its files.
    has_list: bool,
    /// Files that get other content, and new files.
    written: Vec<String>,
    /// Files that the SDK does not have any more.
    removed: Vec<String>,
    /// Those of them that someone has changed or removed.
    by_hand: Vec<String>,
}

/// Carries out `gristmill upgrade-sdk`.
///
/// # Errors
/// When there is no project with a copy of the SDK, the copy was changed by hand, or a file cannot
/// be written.
pub fn upgrade_sdk(args: &UpgradeSdkArgs) -> anyhow::Result<ExitCode> {
    let project = open(args.dir.as_deref())?;
    let (name, language) = (&project.handler.name, project.handler.language);
    let vendor = project.dir.join(VENDOR);
    let shown = vendor.strip_prefix(".").unwrap_or(&vendor).display().to_string();
    let shown = shown.trim_end_matches('/');
    // The same copy is in the projects of both kinds.
    let sdk: Vec<_> = files::of(language, NewKind::Job, name.as_str())
        .into_iter()
        .filter_map(|File { path, content }| {
            let path = path.strip_prefix(VENDOR)?.to_owned();
            Some(File { path, content })
        })
        .collect();
    let Some(before) = version(language, |path| fs::read(vendor.join(path)).ok()) else {
        bail!(
            "{shown} has no copy of the SDK for {language}: `gristmill new NAME --lang {language}` \
             writes a project with one"
        );
    };
    let now = version(language, |path| {
        let file = sdk.iter().find(|file| file.path == path)?;
        Some(file.content.to_vec())
    });
    let now = now.context("the SDK of this program has no version")?;
    let changes = changes(&vendor, &sdk)?;
    if changes.written.is_empty() && changes.removed.is_empty() {
        output::note(format_args!("{shown} has the SDK of this program already, {now}"));
        return Ok(ExitCode::SUCCESS);
    }
    let why = match changes.has_list {
        true => format!("the SDK in {shown} was changed by hand"),
        false => format!("{shown}/{SUMS} does not exist, so these files may have changes by hand"),
    };
    ensure!(
        args.force || changes.by_hand.is_empty(),
        "{why}: {}. Keep the changes elsewhere, or lose them with --force",
        listed(&changes.by_hand)
    );
    write(&vendor, &sdk, &changes)?;
    let versions = match before == now {
        true => format!("{now} as before"),
        false => format!("{now} now, it was {before}"),
    };
    output::note(format_args!(
        "the SDK of {name} is {versions}; files written: {}, removed: {}, in {shown}",
        changes.written.len(),
        changes.removed.len()
    ));
    let install = match language {
        Language::Rust => "",
        Language::Python => PYTHON_INSTALL,
        Language::Javascript => JAVASCRIPT_INSTALL,
    };
    let commands = [install, "gristmill test"].into_iter().filter(|command| !command.is_empty());
    output::next(commands.collect::<Vec<_>>().join(" && "));
    Ok(ExitCode::SUCCESS)
}

/// The first of these files, and the number of the others.
fn listed(files: &[String]) -> String {
    const SHOWN: usize = 8;
    let names = files.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(SHOWN) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// The version that the manifest of a copy has. `read` reads a file below `vendor/`.
fn version(language: Language, read: impl Fn(&str) -> Option<Vec<u8>>) -> Option<String> {
    #[derive(Deserialize)]
    struct Package {
        version: String,
    }
    #[derive(Deserialize)]
    struct Manifest {
        #[serde(alias = "project")]
        package: Package,
    }
    let path = match language {
        Language::Rust => "gristmill-sdk/Cargo.toml",
        Language::Python => "gristmill-sdk/python/pyproject.toml",
        Language::Javascript => "gristmill-sdk/javascript/package.json",
    };
    let text = String::from_utf8(read(path)?).ok()?;
    match language {
        Language::Javascript => serde_json::from_str::<Package>(&text).ok().map(|it| it.version),
        Language::Rust | Language::Python => {
            toml::from_str::<Manifest>(&text).ok().map(|it| it.package.version)
        }
    }
}

/// Compares a copy with the list that it came with, and with the SDK of this program.
fn changes(vendor: &Path, sdk: &[File]) -> anyhow::Result<Changes> {
    let listed = read(&vendor.join(SUMS))?;
    let listed = listed.map(String::from_utf8).transpose();
    let listed = listed.with_context(|| format!("{} is not text", vendor.join(SUMS).display()))?;
    let listed: Option<BTreeMap<_, _>> = listed.as_ref().map(|text| {
        text.lines()
            .filter_map(|line| line.split_once("  "))
            .map(|(hash, path)| (path, hash))
            .collect()
    });
    let mut changes = Changes { has_list: listed.is_some(), ..Changes::default() };
    for File { path, content } in sdk {
        let there = read(&vendor.join(path))?;
        if there.as_deref() == Some(content) {
            continue;
        }
        changes.written.push(path.clone());
        let given = listed.as_ref().and_then(|listed| listed.get(path.as_str()));
        let is_own = match (&there, given) {
            (Some(there), Some(given)) => hash(there) == *given,
            // A copy without the list may be the user's in each file; a new file replaces nothing.
            (Some(_), None) => path == SUMS,
            (None, Some(_)) => false,
            (None, None) => true,
        };
        if !is_own {
            changes.by_hand.push(path.clone());
        }
    }
    for (path, given) in listed.into_iter().flatten() {
        // The list is a file of the user: no path of it leads out of the copy.
        let is_inside =
            Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || sdk.iter().any(|file| file.path == path) {
            continue;
        }
        let Some(there) = read(&vendor.join(path))? else { continue };
        changes.removed.push(path.to_owned());
        if hash(&there) != given {
            changes.by_hand.push(path.to_owned());
        }
    }
    Ok(changes)
}

fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Writes the list last: until then, a repetition finds the files that are new already.
fn write(vendor: &Path, sdk: &[File], changes: &Changes) -> anyhow::Result<()> {
    for path in &changes.removed {
        let path = vendor.join(path);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    let (list, files): (Vec<_>, Vec<_>) = sdk
        .iter()
        .filter(|file| changes.written.contains(&file.path))
        .partition(|file| file.path == SUMS);
    for file in files.into_iter().chain(list) {
        files::write(&vendor.join(&file.path), &file.content)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "sdk_tests.rs"]
mod tests;
