//! The `gristmill` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    gristmill::cli::main()
}
