//! `gristmill new`: a new project that builds, runs and has tests.

mod files;
mod kind;
mod sdk;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use gristmill_commands::output;
use gristmill_core::id::EndpointId;

use super::project::{FILE_NAME, Language};

use kind::NewKind;
pub use sdk::{UpgradeSdkArgs, upgrade_sdk};

/// Longest name, in characters. Package registries and endpoints allow more.
const NAME_CHARS_MAX: usize = 64;

/// Names of a new project's dependencies, which its own package cannot have.
const TAKEN: [&str; 3] = ["gristmill-sdk", "gristmill", "serde"];

/// Write a new project: a handler of jobs that streams, or one of HTTP requests, with tests.
///
/// The project has everything that it needs, except packages of its language. The SDK is in
/// `vendor/`; keep it under version control with the other files. A project for HTTP in Rust needs
/// no SDK.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The name of the handler, its package and its endpoint.
    #[arg(value_parser = name)]
    name: String,
    /// The language: rust, python, js (or javascript), or typescript (or ts). The last two write
    /// the same project, whose handler is in TypeScript.
    #[arg(long, value_enum)]
    lang: NewLanguage,
    /// What the handler answers: jobs, or HTTP requests.
    #[arg(long, value_enum, default_value_t = NewKind::Job)]
    kind: NewKind,
    /// The directory to create; it must be empty or not exist [default: ./NAME].
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NewLanguage {
    Rust,
    Python,
    #[value(alias = "javascript")]
    Js,
    #[value(alias = "ts")]
    Typescript,
}

impl From<NewLanguage> for Language {
    fn from(language: NewLanguage) -> Self {
        match language {
            NewLanguage::Rust => Self::Rust,
            NewLanguage::Python => Self::Python,
            NewLanguage::Js | NewLanguage::Typescript => Self::Javascript,
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(is_allowed)
        && text.len() <= NAME_CHARS_MAX;
    if !is_name {
        return Err(format!(
            "a name has 1 to {NAME_CHARS_MAX} lower-case letters, digits and `-`, begins with a \
             letter and does not end with `-`"
        ));
    }
    if TAKEN.contains(&text) {
        return Err("a package that the project depends on has this name".to_owned());
    }
    EndpointId::new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Carries out `gristmill new`.
///
/// # Errors
/// When the directory has files already, or cannot be written.
pub fn new(args: &NewArgs) -> anyhow::Result<ExitCode> {
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    check_empty(&dir)?;
    let language = Language::from(args.lang);
    let files = files::of(language, args.kind, &args.name);
    for file in &files {
        files::write(&dir.join(&file.path), &file.content)?;
    }
    let shown = match args.lang {
        NewLanguage::Rust => "Rust",
        NewLanguage::Python => "Python",
        NewLanguage::Js | NewLanguage::Typescript => "TypeScript",
    };
    output::note(format_args!("created {} files of a project in {shown} in", files.len()));
    output::result(dir.display())?;
    output::note("\nnext:");
    for command in next(language, &dir) {
        output::note(format_args!("  {command}"));
    }
    output::note("\nREADME.md there has the rest");
    Ok(ExitCode::SUCCESS)
}

fn check_empty(dir: &Path) -> anyhow::Result<()> {
    let name = dir.display();
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) if dir.join(FILE_NAME).exists() => {
            bail!("there is a project in {name} already: choose another place with --dir")
        }
        Ok(false) => bail!("{name} is not empty: choose another place with --dir"),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            bail!("{name} is a file: choose another place with --dir")
        }
        Err(error) => Err(error).with_context(|| format!("cannot read the directory {name}")),
    }
}

/// The first commands in a new project.
fn next(language: Language, dir: &Path) -> [String; 3] {
    let enter = format!("cd {}", output::in_shell(&dir.display().to_string()));
    match language {
        Language::Rust => [enter, "gristmill build".to_owned(), "gristmill test".to_owned()],
        Language::Python => [
            enter,
            format!("python3 -m venv .venv && {}", super::build::PYTHON_INSTALL),
            "gristmill build".to_owned(),
        ],
        Language::Javascript => {
            [enter, super::build::JAVASCRIPT_INSTALL.to_owned(), "gristmill build".to_owned()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fit_for_every_toolchain() {
        for text in ["a", "count", "my-handler-2"] {
            assert_eq!(name(text).as_deref(), Ok(text));
        }
        for text in ["", "Count", "2count", "-a", "a-", "a_b", "a b", "ä", "../a", &"a".repeat(65)]
        {
            assert!(name(text).unwrap_err().contains("lower-case letters"), "{text}");
        }
        assert!(name("serde").unwrap_err().contains("depends on"));
        assert!(name("serverless").unwrap_err().contains("reserved"));
    }
}
