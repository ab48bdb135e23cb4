//! Lines that handlers have logged.

use gristmill_core::logs;
use gristmill_wire::management::LogLine;

use crate::answer::wire_time::rfc3339;

/// The answer's form of a line.
pub(crate) fn log_line(line: &logs::LogLine) -> LogLine<'_> {
    LogLine {
        number: line.number,
        at: rfc3339(line.at),
        job_id: line.job.to_string(),
        level: line.level.as_str().into(),
        line: (&*line.text).into(),
    }
}
