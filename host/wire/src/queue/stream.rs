//! Chunks, the pages of `/stream`, and its events.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::JobStatus;
#[cfg(feature = "openapi")]
use crate::schema;

/// One element of a stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamChunk {
    /// The emitted value. A chunk over 1 MB is split: a string into strings, on character
    /// boundaries; any other value into strings of its JSON text, and only these have `part` and
    /// `parts`.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub output: Box<RawValue>,
    /// Those of the handler, with the position of the chunk.
    #[cfg_attr(feature = "openapi", schema(value_type = StreamMetrics))]
    pub metrics: Box<RawValue>,
    /// The index of this part, if the output was split.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u32, required = false))]
    pub part: Option<u32>,
    /// The number of parts, if the output was split.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u32, required = false))]
    pub parts: Option<u32>,
}

/// The handler's metrics, with the position of the chunk.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamMetrics {
    /// The index of the chunk in its attempt, from 0 on, unless the handler has set it to something
    /// else.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub stream_index: Box<RawValue>,
    /// The attempt that emitted the chunk, from the second one on: the job began again, and chunks
    /// of earlier attempts are to be discarded. A number, unless the handler has set it to
    /// something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Value, required = false))]
    pub stream_attempt: Option<Box<RawValue>>,
}

/// An answer of `/stream` under `/sdk/v2`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamPage {
    /// Final only with the last chunk.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Status))]
    pub status: JobStatus,
    /// The chunks.
    pub stream: Vec<StreamChunk>,
}

/// The data of the event `restart`: the job runs again, and its stream begins again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRestart {
    /// The job's id.
    pub id: String,
    /// The number of the attempt whose chunks follow.
    pub attempt: u32,
}

/// The data of the event `end`: the job has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnd {
    /// The job's id.
    pub id: String,
    /// Its final status.
    pub status: JobStatus,
    /// Why it is FAILED or TIMED_OUT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The data of the event `deleted`: the job does not exist any more, and the stream ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDeleted {
    /// The job's id.
    pub id: String,
    /// Why it may have been deleted.
    pub error: String,
}
