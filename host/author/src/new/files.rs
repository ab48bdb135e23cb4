//! The files of a new project. The binary contains them: the templates, the SDK, and the interface
//! between handler and host (WIT). The SDK and the interface are not published anywhere else.
//!
//! A project has the SDK below `vendor/`, with the same relative paths as in this repository, so
//! that the files are the same, except for links to other pages of the repository.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use data_encoding::HEXLOWER;
use rust_embed::RustEmbed;
use sha2::{Digest as _, Sha256};

use super::kind::NewKind;
use crate::project::Language;

/// The directory of a project for its copy of the SDK.
pub(super) const VENDOR: &str = "vendor/";

/// The list of the copy's files with their hashes, in the format of `sha256sum`.
pub(super) const SUMS: &str = "SHA256SUMS";

/// The project's name in the templates, which are valid with it.
pub(super) const NAME_IN_TEMPLATES: &str = "my-handler";

#[derive(RustEmbed)]
#[folder = "templates"]
struct Templates;

#[derive(RustEmbed)]
#[folder = "../../guest-sdk"]
#[include = "README.md"]
#[include = "src/*.rs"]
#[include = "python/README.md"]
#[include = "python/pyproject.toml"]
#[include = "python/src/*.py"]
#[include = "python/src/*/py.typed"]
#[include = "python/wit/*"]
#[include = "javascript/README.md"]
#[include = "javascript/package.json"]
#[include = "javascript/build.js"]
#[include = "javascript/src/*"]
#[include = "javascript/wit/*"]
struct Sdk;

#[derive(RustEmbed)]
#[folder = "../../wit"]
struct Contract;

const LICENCE: &[u8] = include_bytes!("../../../../LICENSE");

/// A file of a project.
#[derive(Debug)]
pub(super) struct File {
    /// The path below the project's directory.
    pub(super) path: String,
    pub(super) content: Cow<'static, [u8]>,
}

/// All files of a project with this name.
pub(super) fn of(language: Language, kind: NewKind, name: &str) -> Vec<File> {
    let template = match kind {
        NewKind::Job => format!("{language}/"),
        NewKind::Http => format!("http/{language}/"),
    };
    let own = of_directory::<Templates>(template)
        .map(|(path, content)| File { path, content: with_name(content, name) });
    if (language, kind) == (Language::Rust, NewKind::Http) {
        return own.collect();
    }
    let own = own.chain(sdk_of(language));
    let mut files: Vec<_> = own.collect();
    let sums = sums(&files);
    files.push(File { path: format!("{VENDOR}{SUMS}"), content: sums.into_bytes().into() });
    files
}

/// The copy of the SDK of a language.
fn sdk_of(language: Language) -> impl Iterator<Item = File> {
    let sdk = match language {
        Language::Rust => "",
        Language::Python => "python/",
        Language::Javascript => "javascript/",
    };
    let sdk = of_directory::<Sdk>(sdk.to_owned())
        // The Rust SDK is in the directory that contains the two others.
        .filter(|(path, _)| !path.starts_with("python/") && !path.starts_with("javascript/"))
        .map(move |(path, content)| File {
            content: if path.ends_with(".md") { without_outer_links(&content) } else { content },
            path: format!("vendor/gristmill-sdk/{sdk}{path}"),
        });
    // The Rust SDK contains its bindings of the contract.
    let contract = of_directory::<Contract>(String::new())
        .filter(move |_| language != Language::Rust)
        .map(|(path, content)| File { path: format!("vendor/wit/{path}"), content });
    let licence = File { path: "vendor/LICENSE".to_owned(), content: LICENCE.into() };
    sdk.chain(contract).chain([licence])
}

/// The list of the files below `vendor/`.
fn sums(files: &[File]) -> String {
    let sdk = files.iter().filter_map(|file| Some((file.path.strip_prefix(VENDOR)?, file)));
    sdk.map(|(path, file)| format!("{}  {path}\n", hash(&file.content))).collect()
}

/// The hash of a file in that list.
pub(super) fn hash(content: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(content))
}

/// Writes a file, in directories that it creates.
///
/// # Errors
/// When one of them cannot be written.
pub(super) fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let parent = path.parent().unwrap_or(path);
    let written = fs::create_dir_all(parent).and_then(|()| fs::write(path, content));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// The files below a directory, by their paths in it.
fn of_directory<E: RustEmbed>(
    directory: String,
) -> impl Iterator<Item = (String, Cow<'static, [u8]>)> {
    E::iter().filter_map(move |path| {
        let content = E::get(&path)?.data;
        Some((path.strip_prefix(&directory)?.to_owned(), content))
    })
}

/// A page of an SDK with the paths of other pages in place of links to them: a project has only the
/// SDK.
fn without_outer_links(page: &[u8]) -> Cow<'static, [u8]> {
    let page = String::from_utf8_lossy(page);
    let mut parts = page.split("](../");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (path, rest) = part.split_once(')').unwrap_or((part, ""));
        if let Some(at) = shown.rfind('[') {
            shown.remove(at);
        }
        shown += &format!(" (`{}`){rest}", path.trim_start_matches("../"));
    }
    shown += "\nPaths such as `docs/start.md` are those of the repository of Gristmill.\n";
    shown.into_bytes().into()
}

fn with_name(content: Cow<'static, [u8]>, name: &str) -> Cow<'static, [u8]> {
    match std::str::from_utf8(&content) {
        Ok(text) => {
            let (in_code, name_in_code) = (in_code(NAME_IN_TEMPLATES), in_code(name));
            let text = text.replace(NAME_IN_TEMPLATES, name).replace(&in_code, &name_in_code);
            text.into_bytes().into()
        }
        Err(_) => content,
    }
}

/// A name as an identifier in code.
fn in_code(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
