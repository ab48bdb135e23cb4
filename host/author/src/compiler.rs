//! The compiler of a developer, which runs in child processes of this same program.

use std::io;

use etcetera::{BaseStrategy as _, choose_base_strategy};
use gristmill_commands::output;
use gristmill_runtime::compile::process::Compiler;

/// A compiler for a waiting developer, with a cache: `gristmill/` in `$XDG_CACHE_HOME`, or in
/// `~/.cache`. Without a home directory, or with a directory that cannot be used, there is no
/// cache, and compiling takes as long as on a host.
///
/// # Errors
/// Errors of [`Compiler::of_this_program`].
pub fn compiler() -> io::Result<Compiler> {
    let mut compiler = Compiler::of_this_program()?;
    if let Ok(places) = choose_base_strategy() {
        let directory = places.cache_dir().join("gristmill");
        if let Err(error) = compiler.use_cache(directory.clone()) {
            let directory = directory.display();
            output::note(format_args!("compiled code is not kept in {directory}: {error}"));
        }
    }
    Ok(compiler)
}
