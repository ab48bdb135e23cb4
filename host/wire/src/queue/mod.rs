//! The queue API. Fields without a value are absent.

mod health;
mod requests;
mod status;
mod stream;
mod submission;
mod timeline;

#[cfg(feature = "openapi")]
pub use crate::policy::SubmissionPolicy;
pub use crate::policy::{Policy, Retention};
pub use health::{HealthReport, JobsReport, WorkersReport};
pub use requests::{RequestList, RequestSummary};
pub use status::StatusDocument;
pub use stream::{StreamChunk, StreamDeleted, StreamEnd, StreamMetrics, StreamPage, StreamRestart};
pub use submission::{S3Config, Submission};
pub use timeline::{JobUsage, QueueCause, Timeline, TimelineEvent, TimelineEventKind};

use serde::{Deserialize, Serialize};

use crate::JobStatus;
#[cfg(feature = "openapi")]
use crate::schema;

/// The answer of `/run`, `/cancel` and `/retry`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Accepted {
    /// The job's id.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::JobId))]
    pub id: String,
    /// Its status when the host answered.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Status))]
    pub status: JobStatus,
}

/// The queue purge result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Purged {
    /// Number of removed jobs.
    pub removed: u64,
    /// `completed`.
    pub status: String,
}
