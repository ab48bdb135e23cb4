//! `gristmill check` and `gristmill repair`: damage in a data directory that no host has open.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use gristmill_commands::output;
use gristmill_core::backup::{COMPONENTS, DATABASE, JOURNAL, SECRETS_KEY};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_store::Damage;

use crate::data_dir::{self, Unfinished};
use gristmill_client::ADMIN_KEY_FILE;

use crate::archive;

/// The exit code of a check that has found no damage, and could not read everything.
const INCOMPLETE: u8 = 3;

/// The directory of network volumes in a data directory.
const VOLUMES: &str = "volumes";

/// The directory of a repaired data directory with the handlers that no record names.
const UNNAMED_COMPONENTS: &str = "unnamed-components";

/// Look for damage in a data directory, without changing it.
///
/// Reads the journal, the tables, all payloads and all handlers, and lists every damaged place with
/// its file and offset. The host must be stopped. Exits with status 1 when there is any damage, and
/// with status 3 when there is none, but the records could not be read without their key.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The data directory.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    /// The file with the key that stored secrets are encrypted with [default: secrets.key in the
    /// data directory].
    #[arg(long, value_name = "FILE")]
    secrets_key: Option<PathBuf>,
}

/// Save the readable data of a damaged data directory into a new one.
///
/// Lists the losses, and does not change the damaged directory. If you have a recent backup,
/// restore it instead: it has no gaps. Exits with status 1 when data is lost.
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// The damaged data directory.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    /// The data directory to create; if it exists, it must be empty.
    #[arg(long, value_name = "NEW")]
    output: PathBuf,

    /// The file with the key that stored secrets are encrypted with [default: secrets.key in the
    /// data directory].
    #[arg(long, value_name = "FILE")]
    secrets_key: Option<PathBuf>,
}

pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckArgs { data_dir, secrets_key } = args;
    data_dir::check_exists(data_dir)?;
    let report = gristmill_store::check(data_dir, secrets_key.as_deref())?;
    let mut damage = report.damage;
    let mut missing = report.kept_components.unwrap_or_default();
    let handlers = each_component(data_dir, |directory, path, is_whole| {
        if !is_whole {
            damage.push(of_component(path));
        }
        // A host uses no other directory.
        if directory == COMPONENTS
            && let Some(digest) = digest_of(path)
        {
            missing.remove(&digest);
        }
        Ok(())
    })?;
    damage.extend(missing.iter().map(|digest| missing_component(data_dir, digest)));
    list(&damage)?;
    output::note(format_args!(
        "{}: read {} jobs, {} payloads, {handlers} handlers and {} frames of the journal; {} damaged",
        data_dir.display(),
        report.jobs,
        report.payloads,
        report.frames,
        places(damage.len()),
    ));
    if report.lacks_key {
        output::note(format_args!(
            "the records of endpoints, templates, handlers, keys and secrets were not checked: they cannot be \
             read without the key of the stored secrets. Put its file {SECRETS_KEY} into {}, or name it with \
             --secrets-key, and check again",
            data_dir.display()
        ));
    }
    Ok(match (damage.is_empty(), report.lacks_key) {
        (false, _) => ExitCode::FAILURE,
        (true, true) => ExitCode::from(INCOMPLETE),
        (true, false) => ExitCode::SUCCESS,
    })
}

pub(crate) fn repair(args: &RepairArgs) -> anyhow::Result<ExitCode> {
    let RepairArgs { data_dir, output: new, secrets_key } = args;
    let cannot_make = || format!("cannot create {}", new.display());
    check_places(data_dir, new)?;
    let mut builder = DirBuilder::new();
    builder.mode(0o700).recursive(true);
    let unfinished = Unfinished::begin(new)?;
    let salvaged = gristmill_store::repair(data_dir, new, secrets_key.as_deref())?;
    let mut losses = salvaged.losses;
    builder.create(new.join(COMPONENTS)).with_context(cannot_make)?;
    // A start deletes the handlers that no record names, and these files may be their only copies.
    let unnamed_dir = new.join(UNNAMED_COMPONENTS);
    let mut unnamed = BTreeSet::new();
    let mut missing = salvaged.kept_components.clone().unwrap_or_default();
    each_component(data_dir, |directory, path, is_whole| {
        let digest = digest_of(path);
        if let Some(digest) = digest {
            missing.remove(&digest);
        }
        if !is_whole {
            losses.push(of_component(path));
            return Ok(());
        }
        let has_record = match &salvaged.kept_components {
            Some(kept) => digest.is_some_and(|digest| kept.contains(&digest)),
            // All records were read, so a start would not have kept others here.
            None => directory == COMPONENTS,
        };
        if has_record {
            return copy(path, &new.join(COMPONENTS));
        }
        unnamed.extend(path.file_name().map(OsStr::to_owned));
        builder.create(&unnamed_dir).with_context(cannot_make)?;
        copy(path, &unnamed_dir)
    })?;
    losses.extend(missing.iter().map(|digest| missing_component(data_dir, digest)));
    if !unnamed.is_empty() {
        data_dir::sync(&unnamed_dir).with_context(cannot_make)?;
    }
    let admin_key = data_dir.join(ADMIN_KEY_FILE);
    if admin_key.exists() {
        copy(&admin_key, new)?;
    }
    data_dir::sync(&new.join(COMPONENTS)).with_context(cannot_make)?;
    unfinished.complete().with_context(cannot_make)?;
    list(&losses)?;
    let (jobs, lost) = (salvaged.jobs, places(losses.len()));
    output::note(format_args!("{jobs} jobs saved to {}; {lost} lost", new.display()));
    if !unnamed.is_empty() {
        output::note(format_args!(
            "handlers that no record names ({}) are in {}: if you need them, upload them \
             again with `gristmill handlers push`",
            unnamed.len(),
            unnamed_dir.display()
        ));
    }
    if data_dir.join(VOLUMES).exists() {
        let (from, to) = (data_dir.join(VOLUMES), new.join(VOLUMES));
        let (from, to) = (from.display(), to.display());
        output::note(format_args!("network volumes are not copied: move {from} to {to}"));
    }
    Ok(if losses.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Refuses a source that is no data directory, and an output inside the source, before anything is
/// created.
fn check_places(data_dir: &Path, new: &Path) -> anyhow::Result<()> {
    data_dir::check_exists(data_dir)?;
    let cannot_read = || format!("cannot read {}", data_dir.display());
    let source = data_dir.canonicalize().with_context(cannot_read)?;
    let tables = source.join(DATABASE);
    if !tables.try_exists().with_context(cannot_read)? && !source.join(JOURNAL).is_dir() {
        bail!(
            "{} is no data directory: it has neither the file {DATABASE} nor the directory {JOURNAL}; \
             --data-dir names that of a host",
            data_dir.display()
        );
    }
    let cannot_make = || format!("cannot create {}", new.display());
    let new_path = std::path::absolute(new).with_context(cannot_make)?;
    // Links and `..` are resolved by the part of the path that exists.
    let existing = new_path.ancestors().find_map(|path| path.canonicalize().ok());
    if existing.is_some_and(|existing| existing.starts_with(&source)) {
        bail!(
            "{} is inside the damaged data directory: choose an output outside {}",
            new.display(),
            data_dir.display()
        );
    }
    Ok(())
}

fn places(count: usize) -> String {
    match count {
        0 => "nothing is".to_owned(),
        1 => "1 place is".to_owned(),
        count => format!("{count} places are"),
    }
}

fn list(damage: &[Damage]) -> anyhow::Result<()> {
    damage.iter().try_for_each(output::result)
}

/// The digest in the name of a component's file.
fn digest_of(path: &Path) -> Option<ComponentDigest> {
    path.file_stem()?.to_str()?.parse().ok()
}

/// A component that a record names, and that has no file.
fn missing_component(data_dir: &Path, digest: &ComponentDigest) -> Damage {
    let file = data_dir.join(COMPONENTS).join(format!("{digest}.wasm"));
    let details = "this handler is missing, and a record of the catalog names it".to_owned();
    Damage { file, offset: None, details }
}

fn of_component(path: &Path) -> Damage {
    let details = "this handler does not match the digest in its name".to_owned();
    Damage { file: path.to_owned(), offset: None, details }
}

/// Passes each uploaded handler to `take`: the name of its directory, its path, and whether its
/// bytes match its name. Returns their number.
fn each_component(
    data_dir: &Path,
    mut take: impl FnMut(&str, &Path, bool) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let mut count = 0;
    for directory in [COMPONENTS, UNNAMED_COMPONENTS] {
        let dir = data_dir.join(directory);
        let cannot_read = || format!("cannot read {}", dir.display());
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(cannot_read),
        };
        for entry in entries {
            let path = entry.with_context(cannot_read)?.path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            // An upload in progress has another name.
            let digest = name.strip_suffix(".wasm").filter(|digest| digest.len() == 64);
            let Some(digest) = digest else { continue };
            count += 1;
            let sum = archive::sum_of(&path);
            take(directory, &path, sum.is_ok_and(|sum| sum == digest))?;
        }
    }
    Ok(count)
}

/// Copies a file into a directory, durably.
fn copy(from: &Path, dir: &Path) -> anyhow::Result<()> {
    let cannot_copy = || format!("cannot copy {} to {}", from.display(), dir.display());
    let to = dir.join(from.file_name().unwrap_or_default());
    fs::copy(from, &to).with_context(cannot_copy)?;
    File::open(&to).and_then(|file| file.sync_all()).with_context(cannot_copy)
}
