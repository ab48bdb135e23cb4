//! Creates the compilers of a host and of a developer; both run in child processes of this same
//! program.

use anyhow::Context as _;
use etcetera::{BaseStrategy as _, choose_base_strategy};
use gristmill_commands::output;
use gristmill_runtime::compile::process::Compiler;

/// The hidden subcommand in which components are compiled.
pub(crate) const COMPILE_COMMAND: &str = "compile-component";

/// A compiler for a host, which leaves half of the cores to jobs.
///
/// # Errors
/// When the program's own file cannot be found.
pub(crate) fn for_host() -> anyhow::Result<Compiler> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(Compiler::child(program, vec![COMPILE_COMMAND.into()]))
}

/// A compiler for a waiting developer, with a cache: `gristmill/` in `$XDG_CACHE_HOME`, or in
/// `~/.cache`. Without a home directory, or with a directory that cannot be used, there is no cache,
/// and compiling takes as long as on a host.
///
/// # Errors
/// Errors of [`for_host`].
pub(crate) fn for_developer() -> anyhow::Result<Compiler> {
    let mut compiler = for_host()?;
    if let Ok(places) = choose_base_strategy() {
        let directory = places.cache_dir().join("gristmill");
        if let Err(error) = compiler.use_cache(directory.clone()) {
            let directory = directory.display();
            output::note(format_args!("compiled code is not kept in {directory}: {error}"));
        }
    }
    Ok(compiler)
}
