//! Writes and reads a job's row.

use std::sync::Arc;

use gristmill_core::id::{JobId, OwnerId, WorkerId};
use gristmill_core::job::{Claim, JobStatus};
use gristmill_core::time::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, Statement, params};

use crate::entry::{Attempt, EndpointKey, Job, Millis, PayloadLocations, Row, Stored};
use crate::journal::image::{FixedImage, JobImage, StateImage};
use crate::owners::Owners;

/// The columns of the table `job`, in the order in which [`read`] takes them.
pub(crate) const SELECT_JOBS: &str = "SELECT seq, id, endpoint, low_priority, \
     execution_timeout_ms, retention_ms, created_at, state, claim, crashes, retries, place, \
     ttl_at, started_at, finished_at, worker, error, chunk_count, webhook, owner, input_bytes, \
     result_bytes, queued_at FROM job \
     ORDER BY seq";

/// [`SELECT_JOBS`] for tables of version 6, which lack the newest columns.
pub(crate) fn select_jobs_of_6() -> String {
    SELECT_JOBS.replace("input_bytes, result_bytes, queued_at", "0, 0, NULL")
}

const INSERT: &str = "INSERT OR REPLACE INTO job (seq, state, claim, crashes, retries, place, ttl_at, \
     started_at, finished_at, worker, error, chunk_count, result_bytes, queued_at, id, endpoint, \
     owner, low_priority, execution_timeout_ms, ttl_ms, retention_ms, created_at, webhook, \
     input_bytes) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
     ?19, ?20, ?21, ?22, ?23, ?24)";

const UPDATE: &str = "UPDATE job SET state = ?2, claim = ?3, crashes = ?4, retries = ?5, \
     place = ?6, ttl_at = ?7, started_at = ?8, finished_at = ?9, worker = ?10, error = ?11, \
     chunk_count = ?12, result_bytes = ?13, queued_at = ?14 WHERE seq = ?1";

/// The columns of a job's row that never change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fixed {
    pub(crate) seq: u64,
    pub(crate) id: JobId,
    pub(crate) endpoint: EndpointKey,
    pub(crate) low_priority: bool,
    pub(crate) execution_timeout_ms: u64,
    pub(crate) retention_ms: u64,
    pub(crate) created_at: Timestamp,
}

/// A number as SQLite stores it. Numbers over 2^63 - 1 are stored as 2^63 - 1, which means "never"
/// for a time.
pub(crate) fn integer(number: impl Into<u64>) -> i64 {
    i64::try_from(number.into()).unwrap_or(i64::MAX)
}

/// Adds a row.
pub(crate) fn insert(
    db: &Connection,
    job: &JobImage<'_>,
    fixed: &FixedImage<'_>,
    row: &Row,
) -> rusqlite::Result<()> {
    let input_bytes = match &job.state {
        StateImage::New { input, .. } => input.unwrap_or(0),
        StateImage::Changed(_) | StateImage::Deleted { .. } => 0,
    };
    let mut statement = db.prepare_cached(INSERT)?;
    bind_changing(&mut statement, job.seq, row)?;
    statement.raw_bind_parameter(15, &job.id[..])?;
    statement.raw_bind_parameter(16, integer(job.endpoint))?;
    statement.raw_bind_parameter(17, fixed.owner)?;
    statement.raw_bind_parameter(18, fixed.low_priority)?;
    statement.raw_bind_parameter(19, integer(fixed.execution_timeout_ms))?;
    statement.raw_bind_parameter(20, integer(fixed.ttl_ms))?;
    statement.raw_bind_parameter(21, integer(fixed.retention_ms))?;
    statement.raw_bind_parameter(22, integer(fixed.created_at))?;
    statement.raw_bind_parameter(23, fixed.webhook)?;
    statement.raw_bind_parameter(24, input_bytes)?;
    statement.raw_execute()?;
    Ok(())
}

/// Writes the columns of a row that can change.
pub(crate) fn update(db: &Connection, seq: u64, row: &Row) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(UPDATE)?;
    bind_changing(&mut statement, seq, row)?;
    let rows = statement.raw_execute()?;
    debug_assert_eq!(rows, 1, "a row that is updated exists");
    Ok(())
}

/// Removes a row, if it exists.
pub(crate) fn delete(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM job WHERE seq = ?1")?.execute(params![integer(seq)])?;
    Ok(())
}

fn bind_changing(statement: &mut Statement<'_>, seq: u64, row: &Row) -> rusqlite::Result<()> {
    let attempt = row.attempt.as_deref();
    let time = |time: Option<Timestamp>| time.map(|time| integer(time.as_millis()));
    let worker = attempt.and_then(|attempt| attempt.worker.as_ref());
    statement.raw_bind_parameter(1, integer(seq))?;
    statement.raw_bind_parameter(2, status_code(row.status))?;
    statement.raw_bind_parameter(3, row.last_claim.0)?;
    statement.raw_bind_parameter(4, row.crashes)?;
    statement.raw_bind_parameter(5, row.retries)?;
    statement.raw_bind_parameter(6, integer(row.queue_position))?;
    statement.raw_bind_parameter(7, integer(row.ttl_at.as_millis()))?;
    statement.raw_bind_parameter(8, time(attempt.and_then(|attempt| attempt.started_at)))?;
    statement.raw_bind_parameter(9, time(attempt.and_then(|attempt| attempt.finished_at)))?;
    statement.raw_bind_parameter(10, worker.map(WorkerId::as_str))?;
    statement.raw_bind_parameter(11, attempt.and_then(|attempt| attempt.error.as_deref()))?;
    statement.raw_bind_parameter(12, integer(row.chunk_count()))?;
    statement.raw_bind_parameter(13, integer(row.result_bytes()))?;
    statement.raw_bind_parameter(14, time(row.queued_again_at()))
}

/// Reads a row of [`SELECT_JOBS`].
pub(crate) fn read(row: &rusqlite::Row<'_>, owners: &mut Owners) -> rusqlite::Result<Job> {
    let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let time = |column| -> rusqlite::Result<Option<Timestamp>> {
        let millis = row.get::<_, Option<i64>>(column)?;
        Ok(millis.map(|millis| Timestamp::from_millis(millis.unsigned_abs())))
    };
    let status =
        status_from(row.get(7)?).ok_or_else(|| invalid(7, Type::Integer, "unknown job state"))?;
    let worker = match row.get::<_, Option<String>>(15)? {
        Some(text) => Some(WorkerId::new(&text).map_err(|e| invalid(15, Type::Text, e))?),
        None => None,
    };
    let attempt = Attempt {
        queued_at: time(22)?,
        started_at: time(13)?,
        finished_at: time(14)?,
        worker,
        error: row.get(16)?,
        chunk_count: number(17)?,
        result_bytes: number(21)?,
    };
    let times = [attempt.queued_at, attempt.started_at, attempt.finished_at];
    let has_attempt = times.iter().any(Option::is_some);
    let last_claim = Claim(row.get(8)?);
    let id = row.get_ref(1)?.as_blob()?;
    let owner = OwnerId::new(row.get_ref(19)?.as_str()?).map_err(|e| invalid(19, Type::Text, e))?;
    Ok(Job {
        id: JobId::from_bytes(id).map_err(|error| invalid(1, Type::Blob, error))?,
        seq: number(0)?,
        endpoint: EndpointKey(row.get(2)?),
        owner: owners.key(&owner),
        low_priority: row.get(3)?,
        input_bytes: u32::try_from(number(20)?).unwrap_or(u32::MAX),
        webhook: row.get::<_, Option<String>>(18)?.map(|url| Arc::new(url.into())),
        payload_locations: PayloadLocations::default(),
        stored: Stored {
            job: true,
            output: match status {
                JobStatus::Completed => true,
                // The bytes may belong to chunks only; deleting an output that does not exist is
                // cheap.
                JobStatus::Failed => attempt.result_bytes > 0,
                JobStatus::InQueue
                | JobStatus::InProgress
                | JobStatus::Cancelled
                | JobStatus::TimedOut => false,
            },
            chunks: attempt.chunk_count > 0,
        },
        created_at: Timestamp::from_millis(number(6)?),
        retention_ms: Millis::new(number(5)?),
        execution_timeout_ms: Millis::new(number(4)?),
        row: Row {
            status: Some(status),
            crashes: row.get(9)?,
            retries: u16::try_from(number(10)?).unwrap_or(u16::MAX),
            last_claim,
            queue_position: number(11)?,
            ttl_at: Timestamp::from_millis(number(12)?),
            attempt: has_attempt.then(|| Arc::new(attempt)),
        },
        live: None,
        pending: None,
    })
}

/// The error for a column with an invalid value.
pub(crate) fn invalid(
    column: usize,
    kind: Type,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, error.into())
}

/// The codes are on disk and must not change.
pub(crate) fn status_code(status: Option<JobStatus>) -> u8 {
    match status {
        Some(JobStatus::InQueue) => 0,
        Some(JobStatus::InProgress) => 1,
        Some(JobStatus::Completed) => 2,
        Some(JobStatus::Failed) => 3,
        Some(JobStatus::Cancelled) => 4,
        Some(JobStatus::TimedOut) => 5,
        None => unreachable!("a removed job has no row"),
    }
}

pub(crate) fn status_from(code: u8) -> Option<JobStatus> {
    Some(match code {
        0 => JobStatus::InQueue,
        1 => JobStatus::InProgress,
        2 => JobStatus::Completed,
        3 => JobStatus::Failed,
        4 => JobStatus::Cancelled,
        5 => JobStatus::TimedOut,
        _ => return None,
    })
}

/// The first column of all rows.
pub(crate) fn list<T: rusqlite::types::FromSql>(
    db: &Connection,
    sql: &str,
) -> rusqlite::Result<Vec<T>> {
    db.prepare(sql)?.query_map((), |row| row.get(0))?.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_survive_their_codes() {
        for status in JobStatus::ALL {
            assert_eq!(status_from(status_code(Some(status))), Some(status));
        }
        assert_eq!(status_from(6), None);
    }

    #[test]
    fn never_survives_as_a_time_that_does_not_come() {
        assert_eq!(integer(Timestamp::NEVER.as_millis()), i64::MAX);
    }
}
