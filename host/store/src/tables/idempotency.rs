//! Idempotency records in the database: a row for each, which outlives its job.

use gristmill_core::id::JobId;
use rusqlite::types::Type;
use rusqlite::{Connection, params};

use crate::format::EndpointKey;
use crate::format::image::{IdBytes, IdempotencyImage};
use crate::tables::sql::{integer, invalid};

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

/// Passes every row to `take`, oldest first.
pub(crate) fn load(
    db: &Connection,
    mut take: impl FnMut(u64, EndpointKey, JobId, IdempotencyImage),
) -> rusqlite::Result<()> {
    let sql = "SELECT seq, endpoint, key, content, job, at FROM repeat ORDER BY seq";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        let job = JobId::from_bytes(row.get_ref(4)?.as_blob()?);
        let job = job.map_err(|error| invalid(4, Type::Blob, error))?;
        let record = IdempotencyImage { key: row.get(2)?, content: row.get(3)?, at: number(5)? };
        take(number(0)?, EndpointKey(row.get(1)?), job, record);
    }
    Ok(())
}
