//! The `gristmill-client` binary: the commands that call a host, for machines without one.

use std::process::ExitCode;

use clap::Parser;
use gristmill_commands::ClientCommand;

/// Calls a host of Gristmill: submits jobs, follows them, and manages what is deployed.
#[derive(Debug, Parser)]
#[command(
    name = "gristmill-client",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = gristmill_commands::HOW_TO_CONNECT
)]
struct Cli {
    #[command(subcommand)]
    command: ClientCommand,
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    gristmill_commands::exit_code(gristmill_commands::block_on(command.execute()))
}
