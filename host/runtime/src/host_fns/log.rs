//! `log`: log lines for the operators of the endpoint.

use gristmill_core::runtime::LogLevel;

use crate::bindings::gristmill::handler::log::{Host, Level};
use crate::sandbox::state::State;

impl Host for State {
    fn write(&mut self, level: Level, message: String) {
        let level = match level {
            Level::Trace => LogLevel::Trace,
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
        };
        self.log.write(level, &message);
    }
}
