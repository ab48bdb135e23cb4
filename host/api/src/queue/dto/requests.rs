//! Lists of an endpoint's jobs.

use gristmill_core::id::{JobId, WorkerId};
use gristmill_core::listing::{Cursor, JobPage};
use gristmill_core::record::JobRecord;
use gristmill_core::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::wire_time::rfc3339;

/// A page of `/requests`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RequestList {
    requests: Vec<RequestSummary>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cursor: Option<String>,
}

/// A job on a page of `/requests`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RequestSummary {
    #[schema(value_type = schema::JobId)]
    id: JobId,
    #[schema(value_type = schema::Status)]
    status: &'static str,
    #[schema(value_type = schema::Time)]
    created_at: String,
    delay_time: u64,
    execution_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    worker_id: Option<WorkerId>,
}

impl RequestList {
    pub(crate) fn new(page: &JobPage, read_at: Timestamp) -> Self {
        let summary = |job: &JobRecord| RequestSummary {
            id: job.id,
            status: job.status.as_str(),
            created_at: rfc3339(job.created_at),
            delay_time: job.delay_ms(read_at),
            execution_time: job.execution_ms(read_at),
            worker_id: job.worker.clone(),
        };
        Self {
            requests: page.jobs.iter().map(summary).collect(),
            cursor: page.next.map(|Cursor(position)| format!("{position:016x}")),
        }
    }
}
