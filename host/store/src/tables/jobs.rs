//! The rows of jobs.

use rusqlite::types::Type;
use rusqlite::{Connection, Statement, params};

use crate::format::image::{
    AttemptImage, FixedImage, IdBytes, JobImage, NewJobImage, RowImage, StateImage,
};
use crate::format::trace;
use crate::tables::sql::{integer, invalid};

/// A query of the columns of the table `job` in the order in which [`read`] takes them.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT seq, id, endpoint, low_priority, execution_timeout_ms, retention_ms, created_at, \
             state, claim, crashes, retries, place, ttl_at, started_at, finished_at, worker, error, \
             chunk_count, webhook, owner, input_bytes, result_bytes, queued_at, ttl_ms, \
             retention_completed_ms, retention_failed_ms, retention_cancelled_ms, past, tags, \
             delivered, trace FROM job ",
            $rest
        )
    };
}

/// All rows.
pub(crate) const SELECT_JOBS: &str = select!("ORDER BY seq");

/// The rows of jobs that are in memory.
pub(crate) const SELECT_IN_MEMORY: &str = select!("INDEXED BY job_in_memory WHERE archived = 0");

/// The archived row with an id.
pub(crate) const SELECT_ARCHIVED_BY_ID: &str = select!("WHERE id = ?1 AND archived = 1");

/// The archived row with a number.
pub(crate) const SELECT_ARCHIVED_BY_SEQ: &str = select!("WHERE seq = ?1 AND archived = 1");

const INSERT: &str = "INSERT OR REPLACE INTO job (seq, state, claim, crashes, retries, place, ttl_at, \
     started_at, finished_at, worker, error, chunk_count, result_bytes, queued_at, past, id, endpoint, \
     owner, low_priority, execution_timeout_ms, ttl_ms, retention_ms, created_at, webhook, \
     input_bytes, retention_completed_ms, retention_failed_ms, retention_cancelled_ms, purge_at, tags, trace) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, \
     ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31)";

const UPDATE: &str = "UPDATE job SET state = ?2, claim = ?3, crashes = ?4, retries = ?5, \
     place = ?6, ttl_at = ?7, started_at = ?8, finished_at = ?9, worker = ?10, error = ?11, \
     chunk_count = ?12, result_bytes = ?13, queued_at = ?14, past = ?15, purge_at = ?16 WHERE seq = ?1";

/// Values of a new row that its frame lacks, or has otherwise than memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    /// Bytes of the input as memory counts them. The same number is counted once the job is
    /// archived.
    pub(crate) input_bytes: u32,
    /// When the job is deleted. Only an archived row needs it, and without the place for it a row
    /// would grow when it is archived.
    pub(crate) purge_at: Option<u64>,
}

impl Counted {
    /// The values for a row that is written from its frame alone.
    pub(crate) fn of(job: &JobImage<'_>) -> Self {
        let input_bytes = match &job.state {
            StateImage::New { input, .. } => input.unwrap_or(0),
            StateImage::Changed(_) | StateImage::Deleted { .. } => 0,
        };
        Self { input_bytes, purge_at: None }
    }
}

/// Adds a row.
pub(crate) fn insert(
    db: &Connection,
    job: &JobImage<'_>,
    fixed: &FixedImage<'_>,
    row: &RowImage<'_>,
    Counted { input_bytes, purge_at }: Counted,
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(INSERT)?;
    bind_changing(&mut statement, job.seq, row)?;
    statement.raw_bind_parameter(16, &job.id[..])?;
    statement.raw_bind_parameter(17, integer(job.endpoint))?;
    statement.raw_bind_parameter(18, fixed.owner)?;
    statement.raw_bind_parameter(19, fixed.low_priority)?;
    statement.raw_bind_parameter(20, integer(fixed.execution_timeout_ms))?;
    statement.raw_bind_parameter(21, integer(fixed.ttl_ms))?;
    statement.raw_bind_parameter(22, integer(fixed.retention_ms))?;
    statement.raw_bind_parameter(23, integer(fixed.created_at))?;
    statement.raw_bind_parameter(24, fixed.webhook)?;
    statement.raw_bind_parameter(25, input_bytes)?;
    statement.raw_bind_parameter(26, fixed.retention_completed_ms.map(integer))?;
    statement.raw_bind_parameter(27, fixed.retention_failed_ms.map(integer))?;
    statement.raw_bind_parameter(28, fixed.retention_cancelled_ms.map(integer))?;
    statement.raw_bind_parameter(29, purge_at.map(integer))?;
    statement.raw_bind_parameter(30, fixed.tags)?;
    statement.raw_bind_parameter(31, trace::column(fixed.trace, fixed.trace_state))?;
    statement.raw_execute()?;
    Ok(())
}

/// Writes the columns of a row that can change.
pub(crate) fn update(
    db: &Connection,
    seq: u64,
    row: &RowImage<'_>,
    purge_at: Option<u64>,
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(UPDATE)?;
    bind_changing(&mut statement, seq, row)?;
    statement.raw_bind_parameter(16, purge_at.map(integer))?;
    let rows = statement.raw_execute()?;
    debug_assert_eq!(rows, 1, "a row that is updated exists");
    Ok(())
}

/// Removes a row, if it exists.
pub(crate) fn delete(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM job WHERE seq = ?1")?.execute(params![integer(seq)])?;
    Ok(())
}

fn bind_changing(
    statement: &mut Statement<'_>,
    seq: u64,
    row: &RowImage<'_>,
) -> rusqlite::Result<()> {
    let attempt = row.attempt.as_ref();
    let (started_at, finished_at) =
        attempt.map_or((None, None), |attempt| (attempt.started_at, attempt.finished_at));
    statement.raw_bind_parameter(1, integer(seq))?;
    statement.raw_bind_parameter(2, row.state)?;
    statement.raw_bind_parameter(3, row.claim)?;
    statement.raw_bind_parameter(4, row.crashes)?;
    statement.raw_bind_parameter(5, row.retries)?;
    statement.raw_bind_parameter(6, integer(row.queue_position))?;
    statement.raw_bind_parameter(7, integer(row.ttl_at))?;
    statement.raw_bind_parameter(8, started_at.map(integer))?;
    statement.raw_bind_parameter(9, finished_at.map(integer))?;
    statement.raw_bind_parameter(10, attempt.and_then(|attempt| attempt.worker))?;
    statement.raw_bind_parameter(11, attempt.and_then(|attempt| attempt.error))?;
    statement.raw_bind_parameter(12, integer(attempt.map_or(0, |attempt| attempt.chunk_count)))?;
    statement.raw_bind_parameter(13, integer(row.result_bytes))?;
    statement.raw_bind_parameter(14, row.queued_at.map(integer))?;
    statement.raw_bind_parameter(15, row.past)
}

/// The number of chunks of an archived row's stream that a client has read.
pub(crate) fn delivered(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<u64>> {
    row.get::<_, Option<i64>>(29).map(|it| it.map(i64::unsigned_abs))
}

/// Reads a row of [`SELECT_JOBS`].
///
/// # Errors
/// When a column has another type or range. Other values are checked by those who use them.
pub(crate) fn read<'a>(row: &'a rusqlite::Row<'_>) -> rusqlite::Result<NewJobImage<'a>> {
    let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let optional = |column| row.get::<_, Option<i64>>(column).map(|it| it.map(i64::unsigned_abs));
    let text = |column| row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from);
    let id = IdBytes::try_from(row.get_ref(1)?.as_blob()?);
    let queued_at = optional(22)?;
    let attempt = AttemptImage {
        started_at: optional(13)?,
        finished_at: optional(14)?,
        worker: text(15)?,
        error: text(16)?,
        chunk_count: number(17)?,
        host: None,
    };
    let past = row.get_ref(27)?.as_blob_or_null()?;
    let (trace, trace_state) = trace::parts(row.get_ref(30)?.as_blob_or_null()?);
    let times = [queued_at, attempt.started_at, attempt.finished_at];
    Ok(NewJobImage {
        seq: number(0)?,
        id: id.map_err(|error| invalid(1, Type::Blob, error))?,
        endpoint: row.get(2)?,
        fixed: FixedImage {
            owner: row.get_ref(19)?.as_str()?,
            low_priority: row.get(3)?,
            execution_timeout_ms: number(4)?,
            ttl_ms: number(23)?,
            retention_ms: number(5)?,
            created_at: number(6)?,
            webhook: text(18)?,
            retention_completed_ms: optional(24)?,
            retention_failed_ms: optional(25)?,
            retention_cancelled_ms: optional(26)?,
            tags: text(28)?,
            trace,
            trace_state,
        },
        row: RowImage {
            state: row.get(7)?,
            claim: row.get(8)?,
            crashes: row.get(9)?,
            retries: u16::try_from(number(10)?).unwrap_or(u16::MAX),
            queue_position: number(11)?,
            ttl_at: number(12)?,
            attempt: times.iter().any(Option::is_some).then_some(attempt),
            queued_at,
            result_bytes: number(21)?,
            past,
            losses: 0,
        },
        input_bytes: u32::try_from(number(20)?).unwrap_or(u32::MAX),
    })
}
