//! Lists of the jobs of several endpoints.

use gristmill_core::job::listing::{Cursor, JobPage};
use gristmill_core::job::record::JobRecord;
use gristmill_core::job::tags::Tags;
use gristmill_core::time::Timestamp;
use gristmill_wire::management::JobSummary;

use crate::answer::elements::Elements;
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;

/// A page as JSON, in the form of [`JobList`](gristmill_wire::management::JobList). It ends as
/// [other pages](Elements) do.
///
/// # Errors
/// 500 when a job has no JSON form.
pub(crate) fn job_list(page: JobPage, read_at: Timestamp) -> Result<Vec<u8>, ApiError> {
    let (mut jobs, mut next) = (Elements::default(), page.next);
    for (index, job) in page.jobs.into_iter().enumerate() {
        if !jobs.add(&summary(job, read_at))? {
            // The first element always has room.
            next = index.checked_sub(1).and_then(|last| page.positions.after(last));
            break;
        }
    }
    let mut json = [&br#"{"jobs":"#[..], &jobs.into_json()].concat();
    if let Some(Cursor(position)) = next {
        json.extend_from_slice(format!(r#","cursor":"{position:016x}""#).as_bytes());
    }
    json.push(b'}');
    Ok(json)
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
