//! `gristmill serve`: reads the configuration file that the command line names. The options
//! themselves are the fields of [`ServeSettings`].

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::serve::ServeSettings;

const ABOUT: &str = "Run the host";

const LONG_ABOUT: &str = "Run the host.\n\n\
    Prints one line once it answers calls. On SIGTERM or SIGINT it takes no more jobs, waits for \
    running jobs, and ends; a second signal ends it at once. Jobs that did not finish run again \
    after the next start.";

/// The options of the command line and the environment, before the configuration file is read.
#[derive(Debug, Clone)]
pub struct ServeArgs {
    matches: ArgMatches,
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { matches: matches.clone() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.matches = matches.clone();
        Ok(())
    }
}

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let command = ServeSettings::augment_args(command).about(ABOUT).long_about(LONG_ABOUT);
        command.mut_args(|option| option.hide_env_values(true))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl ServeArgs {
    /// Reads the configuration file, if one is named, and combines it with the flags and the
    /// environment.
    ///
    /// # Errors
    /// When the file cannot be read, has an unknown option, or a value out of bounds.
    pub fn settings(&self) -> anyhow::Result<ServeSettings> {
        let file = match self.matches.get_one::<PathBuf>("config") {
            Some(path) => read(path)
                .with_context(|| format!("cannot use the configuration file {}", path.display()))?,
            None => ServeSettings::default(),
        };
        Ok(file.overridden_by(&self.matches)?)
    }
}

/// Runs the host. The variables of OpenTelemetry are no options: their names and values are those
/// of a standard.
pub(crate) fn serve(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let settings = args.settings()?;
    let variable = |name: &str| std::env::var_os(name)?.into_string().ok();
    crate::serve::run(&settings, gristmill_traces::TraceSettings::from_env(variable)?)?;
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> anyhow::Result<ServeSettings> {
    ServeSettings::from_toml(&std::fs::read_to_string(file)?)
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
