//! Idempotency records in the database: a row for each, which outlives its job.

use gristmill_core::id::JobId;
use gristmill_core::time::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, params};

use crate::entry::EndpointKey;
use crate::idempotency_index::{Dropped, IdempotencyRecord};
use crate::index::Index;
use crate::journal::image::{IdBytes, IdempotencyImage};
use crate::row::{integer, invalid};

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

/// Loads the rows into the index, except those of deleted endpoints.
pub(crate) fn load(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let sql = "SELECT seq, endpoint, key, content, job, at FROM repeat ORDER BY seq";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        let (seq, endpoint) = (number(0)?, EndpointKey(row.get(1)?));
        // A row outlives its job and its endpoint, so their numbers must not be used again.
        index.last_seq = index.last_seq.max(seq);
        index.last_endpoint = index.last_endpoint.max(endpoint.0);
        let job = JobId::from_bytes(row.get_ref(4)?.as_blob()?);
        let first = IdempotencyRecord {
            seq,
            job: job.map_err(|error| invalid(4, Type::Blob, error))?,
            content: row.get(3)?,
            at: Timestamp::from_millis(number(5)?),
        };
        if index.endpoints.contains_key(&endpoint) {
            let forgotten = index.idempotency_index.insert(endpoint, row.get(2)?, first);
            if let Some(Dropped::Only(seq)) = forgotten {
                index.dropped_records.push(seq);
            }
        }
    }
    index.dropped_records_up_to = Some(index.idempotency_index.no_record_up_to(index.last_seq));
    Ok(())
}
