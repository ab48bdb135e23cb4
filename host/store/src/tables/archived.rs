//! Archived jobs: ended jobs whose rows are all that the store has of them. Memory has neither the
//! job nor an entry in an index.
//!
//! The mark of a row and the sums over all marked rows change in the same transaction, so that a
//! start reads only the sums. Each lookup uses an index of the marked rows: by id, by endpoint and
//! status, or by the time of deletion.
//!
//! **Cost.** About 10 µs to mark a row, to remove the mark, or to find a row.

use std::collections::BTreeMap;

use gristmill_core::id::{JobId, OwnerId};
use gristmill_core::job::state::JobStatus;
use gristmill_core::job::tags::Tags;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use crate::format::EndpointKey;
use crate::format::archived::{ArchivedJob, ArchivedSum};
use crate::format::status_code;
use crate::tables::sql::{integer, invalid};
use crate::tables::{chunks, found_by, jobs, payloads};

/// The bytes of a row as [`ArchivedJob::kept`] counts them. Status codes 3 and 5 are FAILED and
/// TIMED_OUT, which keep their inputs.
macro_rules! kept {
    () => {
        "result_bytes + CASE WHEN state IN (3, 5) THEN input_bytes ELSE 0 END + coalesce(octet_length(tags), 0)"
    };
}

/// A query of the columns that a deletion needs, in the order in which [`Deletable::read`] takes
/// them.
macro_rules! select_deletable {
    ($rest:literal) => {
        concat!(
            "SELECT seq, id, endpoint, owner, ",
            kept!(),
            ", purge_at, created_at, tags FROM job ",
            $rest
        )
    };
}

/// Marks rows, which must not be marked yet.
pub(crate) fn mark(db: &Connection, jobs: &[ArchivedJob]) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached(
        "UPDATE job SET archived = 1, purge_at = ?2, delivered = ?3 WHERE seq = ?1",
    )?;
    for job in jobs {
        let rows = update.execute(params![
            integer(job.seq),
            integer(job.purge_at),
            job.delivered.map(integer)
        ])?;
        debug_assert_eq!(rows, 1, "a job that is archived has a row");
    }
    found_by::add(db, jobs.iter())?;
    change_sums(db, jobs, true)
}

/// Removes the marks of marked rows: memory has the jobs again.
pub(crate) fn unmark(db: &Connection, jobs: &[ArchivedJob]) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached("UPDATE job SET archived = 0 WHERE seq = ?1")?;
    for job in jobs {
        update.execute([integer(job.seq)])?;
    }
    found_by::remove(db, jobs.iter())?;
    change_sums(db, jobs, false)
}

/// Deletes marked rows, with their payloads. The sums do not change for damaged rows.
pub(crate) fn delete(db: &Connection, rows: &[Deletable]) -> rusqlite::Result<()> {
    for row in rows {
        jobs::delete(db, row.seq)?;
        payloads::delete(db, row.seq, true)?;
        chunks::delete(db, row.seq)?;
    }
    found_by::remove(db, rows.iter().filter_map(|row| row.job.as_ref()))?;
    found_by::remove_old_times(db)?;
    change_sums(db, rows.iter().filter_map(|row| row.job.as_ref()), false)
}

/// Deletes the sums of an endpoint that has no archived rows any more. Only damage has left any.
pub(crate) fn delete_sums(db: &Connection, endpoint: EndpointKey) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM archived WHERE endpoint = ?1")?.execute([endpoint.0])?;
    Ok(())
}

/// Adds jobs to the sums, or subtracts them.
fn change_sums<'a>(
    db: &Connection,
    jobs: impl IntoIterator<Item = &'a ArchivedJob>,
    adds: bool,
) -> rusqlite::Result<()> {
    let mut sums: BTreeMap<(u32, &OwnerId), (i64, i64)> = BTreeMap::new();
    for job in jobs {
        let (number, kept) = sums.entry((job.endpoint.0, &job.owner)).or_default();
        *number += 1;
        *kept += integer(job.kept);
    }
    let sql = if adds {
        "INSERT INTO archived (endpoint, owner, jobs, kept) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs, kept = kept + excluded.kept"
    } else {
        "UPDATE archived SET jobs = jobs - ?3, kept = kept - ?4 WHERE endpoint = ?1 AND owner = ?2"
    };
    let mut change = db.prepare_cached(sql)?;
    let empty = "DELETE FROM archived WHERE endpoint = ?1 AND owner = ?2 AND jobs <= 0";
    let mut empty = db.prepare_cached(empty)?;
    for ((endpoint, owner), (number, kept)) in sums {
        change.execute(params![endpoint, owner.as_str(), number, kept])?;
        if !adds {
            empty.execute(params![endpoint, owner.as_str()])?;
        }
    }
    Ok(())
}

/// The sums.
pub(crate) fn sums(db: &Connection) -> rusqlite::Result<Vec<ArchivedSum>> {
    read_sums(db, "SELECT endpoint, owner, jobs, kept FROM archived ORDER BY endpoint, owner")
}

/// The sums, computed from the rows. Reads all of them.
const COMPUTED: &str = concat!(
    "SELECT endpoint, owner, count(*), sum(",
    kept!(),
    ") FROM job WHERE archived = 1 GROUP BY endpoint, owner ORDER BY endpoint, owner"
);

/// The sums as the rows have them.
pub(crate) fn computed_sums(db: &Connection) -> rusqlite::Result<Vec<ArchivedSum>> {
    read_sums(db, COMPUTED)
}

/// Replaces the sums by those of the rows.
pub(crate) fn compute_sums(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM archived", ())?;
    db.execute(&format!("INSERT INTO archived (endpoint, owner, jobs, kept) {COMPUTED}"), ())?;
    Ok(())
}

fn read_sums(db: &Connection, sql: &str) -> rusqlite::Result<Vec<ArchivedSum>> {
    let mut statement = db.prepare(sql)?;
    let read = |row: &Row<'_>| {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        Ok(ArchivedSum {
            endpoint: EndpointKey(row.get(0)?),
            owner: OwnerId::new(row.get_ref(1)?.as_str()?)
                .map_err(|error| invalid(1, Type::Text, error))?,
            jobs: number(2)?,
            kept: number(3)?,
        })
    };
    statement.query_map((), read)?.collect()
}

/// When the next archived job is to be deleted; `None` when there is no archived job.
pub(crate) fn next_purge_at(db: &Connection) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT min(purge_at) FROM job WHERE archived = 1";
    let found: Option<i64> = db.prepare_cached(sql)?.query_row((), |row| row.get(0))?;
    Ok(found.map(i64::unsigned_abs))
}

/// Passes the row of the archived job with this id to `read`.
pub(crate) fn find<T>(
    db: &Connection,
    id: JobId,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    one(db, jobs::SELECT_ARCHIVED_BY_ID, [&id.to_bytes()[..]], read)
}

/// Passes the archived row with this number to `read`.
pub(crate) fn find_row<T>(
    db: &Connection,
    seq: u64,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    one(db, jobs::SELECT_ARCHIVED_BY_SEQ, [integer(seq)], read)
}

fn one<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    db.prepare_cached(sql)?.query_row(params, read).optional()
}

/// Some archived rows that are due at a time.
const SELECT_DUE: &str =
    select_deletable!("WHERE archived = 1 AND purge_at <= ?1 ORDER BY purge_at LIMIT ?2");

/// Some archived rows of an endpoint.
const SELECT_OF_ENDPOINT: &str = select_deletable!("WHERE archived = 1 AND endpoint = ?1 LIMIT ?2");

/// An archived row of this number.
const SELECT_DELETABLE: &str = select_deletable!("WHERE archived = 1 AND seq = ?1");

/// The archived row of a job.
const SELECT_DELETABLE_BY_ID: &str = select_deletable!("WHERE id = ?1 AND archived = 1");

/// The smallest numbers of archived rows of an endpoint and status.
const SELECT_OLDEST: &str = "SELECT seq FROM job WHERE archived = 1 AND endpoint = ?1 AND state = ?2 \
     ORDER BY seq LIMIT ?3";

/// An archived row that is to be deleted. A damaged row is deleted as well: otherwise one such row
/// would stop each deletion that meets it.
#[derive(Debug)]
pub(crate) struct Deletable {
    pub(crate) seq: u64,
    /// `None` when the column is damaged.
    pub(crate) id: Option<JobId>,
    /// `None` when the columns are damaged that the sums need.
    pub(crate) job: Option<ArchivedJob>,
}

impl Deletable {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let seq = row.get::<_, i64>(0)?.unsigned_abs();
        let id = row.get_ref(1)?.as_blob().ok().and_then(|id| JobId::from_bytes(id).ok());
        let job = || {
            Some(ArchivedJob {
                seq,
                endpoint: EndpointKey(row.get(2).ok()?),
                owner: OwnerId::new(row.get_ref(3).ok()?.as_str().ok()?).ok()?,
                kept: row.get::<_, i64>(4).ok()?.try_into().ok()?,
                purge_at: row.get::<_, i64>(5).ok()?.try_into().ok()?,
                created_at: row.get::<_, i64>(6).ok()?.try_into().ok()?,
                tags: row
                    .get_ref(7)
                    .ok()?
                    .as_str()
                    .ok()
                    .and_then(|text| Tags::from_text(text).ok()),
                delivered: None,
            })
        };
        Ok(Self { seq, id, job: job() })
    }
}

/// Up to `count_max` archived rows whose jobs are to be deleted at `now` or before, the earliest
/// first.
pub(crate) fn due(db: &Connection, now: u64, count_max: usize) -> rusqlite::Result<Vec<Deletable>> {
    let mut statement = db.prepare_cached(SELECT_DUE)?;
    let params = params![integer(now), integer(count_max as u64)];
    statement.query_map(params, Deletable::read)?.collect()
}

/// Up to `count_max` archived rows of an endpoint.
pub(crate) fn of_endpoint(
    db: &Connection,
    endpoint: EndpointKey,
    count_max: usize,
) -> rusqlite::Result<Vec<Deletable>> {
    let mut statement = db.prepare_cached(SELECT_OF_ENDPOINT)?;
    let params = params![endpoint.0, integer(count_max as u64)];
    statement.query_map(params, Deletable::read)?.collect()
}

/// The archived row of a job, for its deletion.
pub(crate) fn deletable(db: &Connection, id: JobId) -> rusqlite::Result<Option<Deletable>> {
    one(db, SELECT_DELETABLE_BY_ID, [&id.to_bytes()[..]], Deletable::read)
}

/// Up to `count_max` archived rows of an endpoint, those with the smallest numbers in ascending
/// order.
pub(crate) fn oldest_of_endpoint(
    db: &Connection,
    endpoint: EndpointKey,
    count_max: usize,
) -> rusqlite::Result<Vec<Deletable>> {
    let mut numbers = Vec::new();
    let mut oldest = db.prepare_cached(SELECT_OLDEST)?;
    for status in JobStatus::ALL {
        let params = params![endpoint.0, status_code(Some(status)), integer(count_max as u64)];
        for seq in oldest.query_map(params, |row| row.get::<_, i64>(0))? {
            numbers.push(seq?);
        }
    }
    numbers.sort_unstable();
    numbers.truncate(count_max);
    let mut select = db.prepare_cached(SELECT_DELETABLE)?;
    numbers.iter().map(|seq| select.query_row([seq], Deletable::read)).collect()
}

/// The numbers of up to `count_max` archived rows of an endpoint with this status code, and with
/// numbers less than `before`, the greatest first.
pub(crate) fn numbers_of_status(
    db: &Connection,
    endpoint: EndpointKey,
    status: u8,
    before: u64,
    count_max: usize,
) -> rusqlite::Result<Vec<u64>> {
    let sql = "SELECT seq FROM job WHERE archived = 1 AND endpoint = ?1 AND state = ?2 \
               AND seq < ?3 ORDER BY seq DESC LIMIT ?4";
    let mut statement = db.prepare_cached(sql)?;
    let count_max = integer(count_max as u64);
    let found = statement
        .query_map(params![endpoint.0, status, integer(before), count_max], |row| {
            row.get::<_, i64>(0).map(i64::unsigned_abs)
        });
    found?.collect()
}

/// The owner of the archived job with this id.
pub(crate) fn owner(db: &Connection, id: JobId) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT owner FROM job WHERE id = ?1 AND archived = 1";
    db.prepare_cached(sql)?.query_row([&id.to_bytes()[..]], |row| row.get(0)).optional()
}

/// The greatest number of an archived row of an endpoint.
pub(crate) fn last_of_endpoint(db: &Connection, endpoint: EndpointKey) -> rusqlite::Result<u64> {
    let mut last = 0;
    for status in JobStatus::ALL {
        let code = status_code(Some(status));
        let found = numbers_of_status(db, endpoint, code, u64::MAX, 1)?;
        last = found.first().copied().unwrap_or(0).max(last);
    }
    Ok(last)
}

/// The greatest number of a row of a job, archived or not.
pub(crate) fn last_seq(db: &Connection) -> rusqlite::Result<u64> {
    let last: Option<i64> = db.query_row("SELECT max(seq) FROM job", (), |row| row.get(0))?;
    Ok(last.unwrap_or(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::schema;

    /// Without its index a lookup would read all rows.
    #[test]
    fn each_lookup_uses_an_index() {
        let mut db = Connection::open_in_memory().unwrap();
        schema::create(&mut db).unwrap();
        for (sql, index) in [
            (jobs::SELECT_IN_MEMORY, "USING INDEX job_in_memory"),
            (jobs::SELECT_ARCHIVED_BY_ID, "USING INDEX archived_job_id (id=?)"),
            (jobs::SELECT_ARCHIVED_BY_SEQ, "USING INTEGER PRIMARY KEY (rowid=?)"),
            (SELECT_DUE, "USING INDEX archived_job_purge_at (purge_at<?)"),
            (SELECT_OF_ENDPOINT, "USING INDEX archived_job_state (endpoint=?)"),
            (SELECT_DELETABLE, "USING INTEGER PRIMARY KEY (rowid=?)"),
            (SELECT_DELETABLE_BY_ID, "USING INDEX archived_job_id (id=?)"),
            (SELECT_OLDEST, "USING COVERING INDEX archived_job_state (endpoint=? AND state=?)"),
            (
                "SELECT min(purge_at) FROM job WHERE archived = 1",
                "SEARCH job USING COVERING INDEX archived_job_purge_at",
            ),
            (
                "SELECT seq FROM job WHERE archived = 1 AND endpoint = 1 AND state = 2 AND seq < 3 \
                 ORDER BY seq DESC LIMIT 4",
                "USING COVERING INDEX archived_job_state (endpoint=? AND state=? AND seq<?)",
            ),
            ("SELECT max(seq) FROM job", "SEARCH job"),
        ] {
            let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan = statement.raw_query().mapped(|row| row.get::<_, String>(3));
            let plan: Vec<_> = plan.map(Result::unwrap).collect();
            assert!(plan.len() == 1 && plan[0].contains(index), "{sql}: {plan:?}");
        }
    }
}
