//! Lines that handlers have logged. The host writes a [`LogLine`] with borrowed texts; a client
//! reads one that owns them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use crate::schema;

/// One line of a handler's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LogLine<'a> {
    /// Grows from line to line of the endpoint, also after a restart; `Last-Event-ID` uses it.
    pub number: u64,
    /// When the handler wrote it.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub at: String,
    /// The job that the handler ran.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::JobId))]
    pub job_id: String,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub level: Cow<'a, str>,
    /// The text. A line `… lines up to here are missing` stands for lines that the disk had no room
    /// or time for; the host's own log has all lines.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub line: Cow<'a, str>,
}
