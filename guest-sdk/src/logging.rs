//! Subscribers of the crates `log` and `tracing`, by the features of the same names: each line goes
//! to the job's log, with its level.
//!
//! They are installed before the first job of an instance. A handler that has set a subscriber of
//! its own keeps it. The environment variable `LOG_LEVEL` (`trace`, `debug`, `info`, `warn`,
//! `error`, `off`) chooses the lines; by default they begin with `info`. A line costs one call of
//! the host.

use std::sync::Once;

use crate::Level;
use crate::host::Host;

/// Installs the subscribers, once in an instance.
pub(crate) fn install() {
    static IS_DONE: Once = Once::new();
    IS_DONE.call_once(|| {
        // The parser of `tracing` takes an empty text for `error`.
        let chosen = std::env::var("LOG_LEVEL").ok().filter(|level| !level.is_empty());
        let chosen = chosen.as_deref();
        #[cfg(feature = "log")]
        of_log::install(
            chosen.and_then(|level| level.parse().ok()).unwrap_or(log::LevelFilter::Info),
        );
        #[cfg(feature = "tracing")]
        of_tracing::install(
            chosen
                .and_then(|level| level.parse().ok())
                .unwrap_or(tracing_subscriber::filter::LevelFilter::INFO),
        );
    });
}

fn write(level: Level, line: &str) {
    Host.log(level, line);
}

#[cfg(feature = "log")]
mod of_log {
    use log::{LevelFilter, Log, Metadata, Record};

    use super::write;
    use crate::Level;

    struct JobLog;

    impl Log for JobLog {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.level() <= log::max_level()
        }

        fn log(&self, record: &Record<'_>) {
            let level = match record.level() {
                log::Level::Trace => Level::Trace,
                log::Level::Debug => Level::Debug,
                log::Level::Info => Level::Info,
                log::Level::Warn => Level::Warn,
                log::Level::Error => Level::Error,
            };
            write(level, &format!("{}: {}", record.target(), record.args()));
        }

        fn flush(&self) {}
    }

    pub(super) fn install(level: LevelFilter) {
        if log::set_logger(&JobLog).is_ok() {
            log::set_max_level(level);
        }
    }
}

#[cfg(feature = "tracing")]
mod of_tracing {
    use std::io;

    use tracing_core::Metadata;
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::fmt::MakeWriter;

    use super::write;
    use crate::Level;

    /// Makes a writer for each event.
    struct JobLog;

    /// Collects the text of an event, and writes it when it is complete.
    struct Line {
        level: Level,
        text: Vec<u8>,
    }

    impl<'a> MakeWriter<'a> for JobLog {
        type Writer = Line;

        fn make_writer(&'a self) -> Line {
            Line { level: Level::Info, text: Vec::new() }
        }

        fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line {
            let level = match *metadata.level() {
                tracing_core::Level::TRACE => Level::Trace,
                tracing_core::Level::DEBUG => Level::Debug,
                tracing_core::Level::INFO => Level::Info,
                tracing_core::Level::WARN => Level::Warn,
                tracing_core::Level::ERROR => Level::Error,
            };
            Line { level, text: Vec::new() }
        }
    }

    impl io::Write for Line {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Drop for Line {
        fn drop(&mut self) {
            write(self.level, String::from_utf8_lossy(&self.text).trim_end());
        }
    }

    pub(super) fn install(level: LevelFilter) {
        // Fails if the handler has a subscriber of its own.
        let _ = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_level(false)
            .without_time()
            .with_writer(JobLog)
            .try_init();
    }
}
