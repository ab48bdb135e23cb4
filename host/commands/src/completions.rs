//! `gristmill completions` and `gristmill man`: the command line, written for shells and for `man`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use clap_complete::{Shell, generate};

use crate::output;

/// Print the script with which a shell completes commands and options.
///
/// For this session: `source <(gristmill completions bash)`. For all: write it where the shell
/// looks for scripts, such as ~/.local/share/bash-completion/completions/gristmill, a directory of
/// zsh's $fpath as _gristmill, or ~/.config/fish/completions/gristmill.fish.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write the manual pages of all commands to a directory.
///
/// In a directory `man1` below ~/.local/share/man, `man gristmill-deploy` finds them.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory, which is made if it is missing
    directory: PathBuf,
}

/// `program` has all commands and options. Those that are hidden from users are not completed.
pub(crate) fn completions(
    CompletionsArgs { shell }: &CompletionsArgs,
    program: &clap::Command,
) -> anyhow::Result<ExitCode> {
    let name = program.get_name().to_owned();
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut program = clap::Command::default().subcommands(shown);
    let mut script = Vec::new();
    generate(*shell, &mut program, name, &mut script);
    output::result(String::from_utf8(script)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// A page for each command of `program` that is not hidden from users.
pub(crate) fn man(
    ManArgs { directory }: &ManArgs,
    program: clap::Command,
) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(program, directory))
        .with_context(|| format!("cannot write to {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
