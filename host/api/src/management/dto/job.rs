//! Lists of the jobs of several endpoints.

use gristmill_core::job::listing::{Cursor, JobPage};
use gristmill_core::job::record::JobRecord;
use gristmill_core::job::tags::Tags;
use gristmill_core::time::Timestamp;
use gristmill_wire::management::{JobList, JobSummary};

use crate::answer::wire_time::rfc3339;

/// The answer's form of a page.
pub(crate) fn job_list(page: JobPage, read_at: Timestamp) -> JobList {
    JobList {
        cursor: page.next.map(|Cursor(position)| format!("{position:016x}")),
        jobs: page.jobs.into_iter().map(|job| summary(job, read_at)).collect(),
    }
}

fn summary(job: JobRecord, read_at: Timestamp) -> JobSummary {
    let pairs =
        |tags: Tags| tags.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    JobSummary {
        id: job.id.to_string(),
        status: job.status,
        created_at: rfc3339(job.created_at),
        delay_time: job.delay_ms(read_at),
        execution_time: job.execution_ms(read_at),
        retries: (job.retries > 0).then_some(job.retries),
        endpoint_id: job.endpoint,
        worker_id: job.worker,
        error: job.error,
        tags: job.tags.map(pairs),
    }
}
