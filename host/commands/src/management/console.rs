//! `gristmill console`: a link to the web console.

use std::process::ExitCode;

use clap::Args;

use crate::arguments::ConnectionArgs;
use crate::output;

/// Print a link that logs in to the host's web console.
///
/// The link works once, within a minute, and has the permissions of the key. Open it in a browser
/// that reaches the host at the same URL; the page shows the key, and asks before it logs in.
#[derive(Debug, Args)]
pub struct ConsoleArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn console(ConsoleArgs { connection }: ConsoleArgs) -> anyhow::Result<ExitCode> {
    let client = connection.client()?;
    let made = client.create_console_link().await?.read()?;
    output::note("this link works once, within a minute");
    output::result(client.console_url(&made))?;
    Ok(ExitCode::SUCCESS)
}
