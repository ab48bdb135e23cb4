//! The command line: a file for each command of operators. The commands that only call a host are
//! those of [`gristmill_commands`], which also has the promises about output and exit codes, and
//! those for the authors of handlers are in [`gristmill_author`].

mod backup;
mod check;
mod dev;
mod import;
pub mod serve;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use gristmill_author as author;
use gristmill_commands::{ClientCommand, block_on};
use gristmill_runtime::compile::process::{COMPILE_COMMAND, child_main};

/// A self-hosted serverless platform whose handlers are WebAssembly components.
#[derive(Debug, Parser)]
#[command(
    name = "gristmill",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = gristmill_commands::HOW_TO_CONNECT
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Deploy(Box<author::DeployArgs>),
    New(author::NewArgs),
    UpgradeSdk(author::UpgradeSdkArgs),
    Build(author::BuildArgs),
    Dev(Box<author::DevArgs>),
    Run(Box<author::RunArgs>),
    Test(Box<author::TestArgs>),
    #[command(flatten)]
    Client(ClientCommand),
    Backup(Box<backup::BackupArgs>),
    Restore(backup::RestoreArgs),
    Check(check::CheckArgs),
    Repair(check::RepairArgs),
    Import(import::ImportArgs),
    /// The compiling process of `serve` and `run`.
    #[command(name = COMPILE_COMMAND, hide = true)]
    CompileComponent {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// Reads the command line and carries it out.
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => gristmill_commands::exit_code(execute(cli.command)),
        Err(answer) => gristmill_commands::show(&answer),
    }
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => serve::serve(&args),
        Command::CompileComponent { args } => Ok(child_main(args)),
        Command::New(args) => author::new(&args),
        Command::UpgradeSdk(args) => author::upgrade_sdk(&args),
        Command::Build(args) => block_on(author::build(args)),
        Command::Dev(args) => author::dev(*args, dev::serve),
        Command::Run(args) => author::run(*args),
        Command::Test(args) => author::test(*args),
        Command::Deploy(args) => block_on(author::deploy(*args)),
        Command::Client(command) => block_on(command.execute(Cli::command)),
        Command::Backup(args) => block_on(backup::backup(*args)),
        Command::Restore(args) => backup::restore(&args),
        Command::Check(args) => check::check(&args),
        Command::Repair(args) => check::repair(&args),
        Command::Import(args) => import::import(&args),
    }
}

#[cfg(test)]
mod tests;
