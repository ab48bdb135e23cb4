//! Lists of an endpoint's jobs.

use gristmill_core::job::listing::{Cursor, JobPage};
use gristmill_core::job::record::JobRecord;
use gristmill_core::time::Timestamp;
use gristmill_wire::queue::{RequestList, RequestSummary};

use crate::answer::wire_time::rfc3339;

/// The answer's form of a page.
pub(crate) fn request_list(page: &JobPage, read_at: Timestamp) -> RequestList {
    let summary = |job: &JobRecord| RequestSummary {
        id: job.id.to_string(),
        status: job.status,
        created_at: rfc3339(job.created_at),
        delay_time: job.delay_ms(read_at),
        execution_time: job.execution_ms(read_at),
        worker_id: job.worker.clone(),
    };
    RequestList {
        requests: page.jobs.iter().map(summary).collect(),
        cursor: page.next.map(|Cursor(position)| format!("{position:016x}")),
    }
}
