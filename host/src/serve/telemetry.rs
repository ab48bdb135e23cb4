//! The host's own log: one subscriber, on standard error, so that standard output stays for the
//! ready line.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::serve::ServeSettings;

/// Starts logging, as text for people or as one JSON object a line. Handlers write to the target
/// `handler`.
///
/// # Errors
/// When the filter is malformed, or logging has been started before.
pub(crate) fn start(settings: &ServeSettings) -> anyhow::Result<()> {
    // What a handler passes to the host is the business of whoever wrote it.
    let filter = EnvFilter::try_new(&settings.log)?
        .add_directive(format!("{}=off", gristmill_runtime::HOST_CALLS).parse()?);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if settings.is_json {
        lines.json().try_init()
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).try_init()
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
