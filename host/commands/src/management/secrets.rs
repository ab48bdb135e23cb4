//! `gristmill secrets`: replaces the key that the stored secrets are encrypted with.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gristmill_client::wire::management::RotatedSecrets;

use crate::output;
use crate::resource::CallArgs;

/// Replace the key that the host's stored secrets are encrypted with.
#[derive(Debug, Args)]
pub struct SecretsArgs {
    #[command(subcommand)]
    command: SecretsCommand,
}

#[derive(Debug, Subcommand)]
enum SecretsCommand {
    /// Make a new key, and encrypt all stored secrets with it; jobs run meanwhile.
    ///
    /// The host writes the new key to its key file, `secrets.key` in its data directory or the file
    /// of `serve --secrets-key`, and removes the old key at the end. Backups made before need the
    /// old key: copy the file first. If the host stops before the end, its next start completes the
    /// replacement. Needs a key of the operator with the scope admin.
    Rotate(CallArgs),
}

pub(crate) async fn secrets(args: SecretsArgs) -> anyhow::Result<ExitCode> {
    let SecretsCommand::Rotate(CallArgs { json, connection }) = args.command;
    let answer = connection.client()?.rotate_secrets_key().await?;
    if json {
        output::result(answer.text())?;
    } else {
        let RotatedSecrets { records, jobs } = answer.read()?;
        output::result(format_args!(
            "encrypted again: {records} records, and the s3Config of {jobs} jobs"
        ))?;
    }
    output::note("backups made before need the old key, and backups from now on need the new key");
    Ok(ExitCode::SUCCESS)
}
