//! Idempotency records in the database: a row for each, which outlives its job.

use gristmill_core::id::JobId;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use crate::format::EndpointKey;
use crate::format::image::{IdBytes, IdempotencyImage};
use crate::tables::sql::{each_row, integer, invalid};

/// Adds the row of a job.
pub(crate) fn put(
    db: &Connection,
    seq: u64,
    endpoint: u32,
    id: &IdBytes,
    idempotency: &IdempotencyImage,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO repeat (seq, endpoint, key, content, job, at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        integer(seq),
        endpoint,
        idempotency.key,
        idempotency.content,
        &id[..],
        integer(idempotency.at)
    ])?;
    Ok(())
}

/// Removes the rows up to a number.
pub(crate) fn forget(db: &Connection, last: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM repeat WHERE seq <= ?1")?.execute([integer(last)])?;
    Ok(())
}

/// Removes single rows.
pub(crate) fn delete(db: &Connection, seqs: &[u64]) -> rusqlite::Result<()> {
    let mut delete = db.prepare_cached("DELETE FROM repeat WHERE seq = ?1")?;
    seqs.iter().try_for_each(|seq| delete.execute([integer(*seq)]).map(drop))
}

/// The number, the endpoint, the job and the record of a row.
type Found = (u64, EndpointKey, JobId, IdempotencyImage);

/// Passes every row to `take`, oldest first.
pub(crate) fn load(
    db: &Connection,
    mut take: impl FnMut(u64, EndpointKey, JobId, IdempotencyImage),
) -> rusqlite::Result<()> {
    each(db, |_, found| {
        let (seq, endpoint, job, record) = found?;
        take(seq, endpoint, job, record);
        Ok(())
    })
}

/// Passes the number of every row to `take`, oldest first, with the content of the row or its
/// error.
pub(crate) fn each(
    db: &Connection,
    take: impl FnMut(i64, rusqlite::Result<Found>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let sql = "SELECT seq, endpoint, key, content, job, at FROM repeat ORDER BY seq";
    each_row(db, sql, read, take)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Found> {
    let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let job = JobId::from_bytes(row.get_ref(4)?.as_blob()?);
    let job = job.map_err(|error| invalid(4, Type::Blob, error))?;
    let record = IdempotencyImage { key: row.get(2)?, content: row.get(3)?, at: number(5)? };
    Ok((number(0)?, EndpointKey(row.get(1)?), job, record))
}
