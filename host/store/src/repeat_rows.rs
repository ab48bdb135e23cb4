//! Repeatable submissions on disk: a row for each, written in the transaction of its job, which it
//! outlives.

use gristmill_core::id::JobId;
use gristmill_core::idempotency::Idempotency;
use gristmill_core::time::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, params};

use crate::batch::Batch;
use crate::entry::EndpointKey;
use crate::index::Index;
use crate::repeats::First;
use crate::row::{Fixed, integer, invalid};

/// Adds the rows of new jobs, and removes those that are forgotten.
pub(crate) fn write(db: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for job in &batch.jobs {
        if let Some(Idempotency { key, content }) = job.idempotency {
            let Fixed { seq, endpoint, id, created_at, .. } = job.fixed;
            db.prepare_cached(
                "INSERT INTO repeat (seq, endpoint, key, content, job, at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                integer(seq),
                integer(endpoint.0),
                key,
                content,
                &id.to_bytes()[..],
                integer(created_at.as_millis())
            ])?;
        }
    }
    if let Some(last) = batch.forgotten_repeats {
        db.prepare_cached("DELETE FROM repeat WHERE seq <= ?1")?.execute([integer(last)])?;
    }
    Ok(())
}

/// Brings the rows into the index, but for those of endpoints that are gone.
pub(crate) fn load(db: &Connection, index: &mut Index) -> rusqlite::Result<()> {
    let sql = "SELECT seq, endpoint, key, content, job, at FROM repeat ORDER BY seq";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        let (seq, endpoint) = (number(0)?, EndpointKey(number(1)?));
        // A row outlives its job and its endpoint: their numbers are not used again.
        index.last_seq = index.last_seq.max(seq);
        index.last_endpoint = index.last_endpoint.max(endpoint.0);
        let job = JobId::from_bytes(row.get_ref(4)?.as_blob()?);
        let first = First {
            seq,
            job: job.map_err(|error| invalid(4, Type::Blob, error))?,
            content: row.get(3)?,
            at: Timestamp::from_millis(number(5)?),
        };
        if index.endpoints.contains_key(&endpoint) {
            index.repeats.remember(endpoint, row.get(2)?, first);
        }
    }
    index.forgotten_repeats = Some(index.repeats.nothing_up_to(index.last_seq));
    Ok(())
}
