//! The `gristmill-client` binary: the commands that call a host, for machines without one.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser};
use gristmill_commands::{COMMANDS_OF_GRISTMILL, ClientCommand};

/// Calls a host of Gristmill: submits jobs, follows them, and manages what is deployed.
#[derive(Debug, Parser)]
#[command(
    name = "gristmill-client",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = gristmill_commands::HOW_TO_CONNECT
)]
struct Cli {
    #[command(subcommand)]
    command: ClientCommand,
}

fn main() -> ExitCode {
    match Cli::try_parse().map_err(|answer| of_gristmill(&answer).map_or(answer, with_advice)) {
        Ok(Cli { command }) => gristmill_commands::exit_code(gristmill_commands::block_on(
            command.execute(Cli::command),
        )),
        Err(answer) => gristmill_commands::show(&answer),
    }
}

fn with_advice(name: &str) -> clap::Error {
    let sentence = format!(
        "`gristmill-client` has no command `{name}`: `gristmill {name}` is a command of the program \
         `gristmill`, which also runs handlers and hosts"
    );
    Cli::command().error(ErrorKind::InvalidSubcommand, sentence)
}

/// The command of a refused command line, if only `gristmill` has it.
fn of_gristmill(error: &clap::Error) -> Option<&'static str> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    COMMANDS_OF_GRISTMILL.into_iter().find(|name| name == given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_the_other_program_are_recognized() {
        let refused = |words: &[&str]| Cli::try_parse_from(words).unwrap_err();
        assert_eq!(
            of_gristmill(&refused(&["gristmill-client", "deploy", "a.wasm"])),
            Some("deploy")
        );
        assert_eq!(of_gristmill(&refused(&["gristmill-client", "grind"])), None);
        assert_eq!(of_gristmill(&refused(&["gristmill-client", "submit", "deploy"])), None);
        for name in COMMANDS_OF_GRISTMILL {
            assert!(Cli::try_parse_from(["gristmill-client", name]).is_err(), "{name}");
        }
    }
}
