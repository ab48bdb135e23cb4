//! Lines that handlers have logged.

use gristmill_core::id::JobId;
use gristmill_core::logs;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::wire_time::rfc3339;

/// One line of a handler's log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogLine<'a> {
    /// Grows from line to line of the endpoint; `Last-Event-ID` uses it.
    number: u64,
    #[schema(value_type = schema::Time)]
    at: String,
    #[schema(value_type = schema::JobId)]
    job_id: JobId,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    level: &'static str,
    line: &'a str,
}

impl<'a> From<&'a logs::LogLine> for LogLine<'a> {
    fn from(line: &'a logs::LogLine) -> Self {
        Self {
            number: line.number,
            at: rfc3339(line.at),
            job_id: line.job,
            level: line.level.as_str(),
            line: &line.text,
        }
    }
}
