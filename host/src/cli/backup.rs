//! `gristmill backup` and `gristmill restore`.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tokio::sync::oneshot;

use gristmill_commands::arguments::ConnectionArgs;
use gristmill_commands::calls::unless_signalled;
use gristmill_commands::output::{self, OutputFile, in_shell, next};
use gristmill_core::backup::DATABASE;

use crate::archive::{self, Summary};
use crate::data_dir::{self, Unfinished};

/// Write all data of a running host to a file: jobs, payloads, endpoints, keys and handlers.
///
/// The host continues to work meanwhile. The backup has every change that was acknowledged before
/// it began. The file appears once it is complete and checked.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The file to write, a tar archive; an existing file is replaced.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,

    /// Include the key that stored secrets are encrypted with. Without this option the backup
    /// reveals no secrets, and a restored host needs the key from elsewhere.
    #[arg(long)]
    with_secrets_key: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Create a data directory from a backup.
///
/// A host that is started on it continues from the moment of the backup: it runs the jobs that were
/// waiting or running then, and delivers their webhooks. If the backup is incomplete, no file and
/// no new directory stays.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup.
    #[arg(value_name = "FILE")]
    backup: PathBuf,

    /// The data directory to create; if it exists, it must be empty.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

pub(crate) async fn backup(args: BackupArgs) -> anyhow::Result<ExitCode> {
    let BackupArgs { output, with_secrets_key, connection } = args;
    let client = connection.client()?;
    let cannot_write = || format!("cannot write {}", output.display());
    let summary = unless_signalled(async {
        // It contains the inputs of users' jobs.
        let mut file = OutputFile::begin(&output, 0o600).with_context(cannot_write)?;
        let mut pieces = client.backup(with_secrets_key).await?;
        while let Some(piece) = pieces.next().await? {
            file.file().write_all(&piece).with_context(cannot_write)?;
        }
        // By the same handle, so that exactly the file that gets the name is checked.
        file.file().rewind().with_context(cannot_write)?;
        let summary = check(file.file().try_clone().with_context(cannot_write)?).await?;
        file.complete_durably().with_context(cannot_write)?;
        anyhow::Ok(summary)
    })
    .await?;
    report(&summary, &format!("in {}", output.display()));
    let file = in_shell(&output.display().to_string());
    next(format_args!("gristmill restore {file} --data-dir DIR"));
    Ok(ExitCode::SUCCESS)
}

/// Reads a backup to its end, on a thread of its own: a signal ends the command meanwhile.
async fn check(file: File) -> anyhow::Result<Summary> {
    let (send, checked) = oneshot::channel();
    std::thread::spawn(move || {
        // Without a receiver the command has ended.
        let _ = send.send(archive::read(BufReader::new(file), None));
    });
    checked.await.context("the backup could not be checked")?
}

pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let RestoreArgs { backup, data_dir } = args;
    let file = File::open(backup).with_context(|| format!("cannot read {}", backup.display()))?;
    let cannot_make = || format!("cannot create {}", data_dir.display());
    let unfinished = Unfinished::begin(data_dir)?;
    // In a separate directory until it is complete, since a host must not find half of it. Inside
    // `dir`, because the caller may be able to write only there.
    let unpacked = tempfile::Builder::new().prefix(".restore-").tempdir_in(data_dir);
    let unpacked = unpacked.with_context(cannot_make)?;
    let read = archive::read(BufReader::new(file), Some(unpacked.path()));
    let summary = read.with_context(|| format!("cannot restore {}", backup.display()))?;
    adopt(unpacked.path(), data_dir).with_context(cannot_make)?;
    unpacked.close().with_context(cannot_make)?;
    unfinished.complete().with_context(cannot_make)?;
    report(&summary, &format!("restored to {}", data_dir.display()));
    if !summary.has_secrets_key {
        output::note(
            "it has no secrets.key: put the key there, or name it with `serve --secrets-key`",
        );
    }
    let dir = in_shell(&data_dir.display().to_string());
    next(format_args!("gristmill serve --data-dir {dir}"));
    Ok(ExitCode::SUCCESS)
}

/// Moves the unpacked files to their place, the database last: a host that finds it finds all
/// files.
fn adopt(unpacked: &Path, data_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(unpacked)? {
        let name = entry?.file_name();
        if name != DATABASE {
            fs::rename(unpacked.join(&name), data_dir.join(&name))?;
        }
    }
    data_dir::sync(data_dir)?;
    fs::rename(unpacked.join(DATABASE), data_dir.join(DATABASE))?;
    data_dir::sync(data_dir)
}

fn report(summary: &Summary, place: &str) {
    let Summary { files, bytes, .. } = summary;
    output::note(format_args!("{files} files, {} MiB, {place}", bytes.div_ceil(1 << 20)));
}
