//! The host's own log: one subscriber, on standard error, so that standard output has only the
//! ready line. No job and no call waits for the reader of the log, see
//! [`log_queue`](super::log_queue).

use std::io::IsTerminal as _;
use std::time::Duration;

use tracing::warn;
use tracing_subscriber::EnvFilter;

use super::log_queue::LogQueue;
use super::settings::ServeSettings;

/// Interval of the reports of dropped lines.
const DROPPED_EVERY: Duration = Duration::from_secs(5);

/// The running log. Dropping it waits up to a second for the last lines.
#[derive(Debug)]
pub(crate) struct Log(LogQueue);

impl Log {
    /// Reports dropped lines in the log itself. Never ends.
    pub(crate) fn report_dropped(&self) -> impl Future<Output = ()> + Send + use<> {
        let queue = self.0.clone();
        async move {
            let mut reported = 0;
            loop {
                tokio::time::sleep(DROPPED_EVERY).await;
                let dropped = queue.dropped();
                if dropped > reported {
                    let lines = dropped - reported;
                    reported = dropped;
                    warn!(lines, "{lines} lines of this log were dropped: it is read too slowly");
                }
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Starts logging, as text or as one JSON object per line. Handlers' lines have the target
/// `handler`.
///
/// # Errors
/// When the filter is malformed, or logging has been started before.
pub(crate) fn start(settings: &ServeSettings) -> anyhow::Result<Log> {
    // The arguments of host calls belong to the handler's author, and the parameters of statements,
    // such as inputs and outputs, to the callers: they do not belong in the operator's log. The
    // migrations of a new directory are no news. A client causes a warning of `h2` with each
    // connection, so that a stranger would fill the log.
    let filter = EnvFilter::try_new(settings.log.as_str())?
        .add_directive(format!("{}=off", gristmill_runtime::HOST_CALLS).parse()?)
        .add_directive("tokio_postgres=info".parse()?)
        .add_directive("refinery_core=warn".parse()?)
        .add_directive("h2=error".parse()?);
    let queue = LogQueue::start(std::io::stderr())?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(queue.clone());
    let started = if settings.json {
        lines.json().try_init()
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).try_init()
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))?;
    Ok(Log(queue))
}
