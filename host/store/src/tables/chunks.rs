//! Pages of stream chunks in the tables, in the bytes of the journal.

use gristmill_core::job::record::ChunkPage;
use rusqlite::{Connection, params};

use crate::format::pages::{Answer, Page, Query, decode};
use crate::journal::checksum;
use crate::tables::sql::{integer, is_whole};

/// Writes a page to its table, in the bytes of the journal.
pub(crate) fn put(db: &Connection, seq: u64, first: u64, bytes: &[u8]) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO chunk (seq, first, body, sum) VALUES (?1, ?2, ?3, ?4)";
    let sum = checksum::of(bytes);
    db.prepare_cached(sql)?.execute(params![integer(seq), integer(first), bytes, sum])?;
    Ok(())
}

/// Reads the chunks of `query`, as far as the table has them. The inner error means that a page is
/// damaged.
pub(crate) fn get(
    db: &Connection,
    seq: u64,
    query: &Query,
) -> rusqlite::Result<Result<ChunkPage, String>> {
    let mut answer = Answer::new(query);
    let mut statement = db.prepare_cached(
        "SELECT first, body, sum FROM chunk WHERE seq = ?1 AND first >= ifnull(
           (SELECT max(first) FROM chunk WHERE seq = ?1 AND first <= ?2), 0) ORDER BY first",
    )?;
    let mut rows = statement.query(params![integer(seq), integer(query.from)])?;
    while answer.next_needed().is_some()
        && let Some(row) = rows.next()?
    {
        let first = row.get::<_, i64>(0)?.unsigned_abs();
        let body: Vec<u8> = row.get(1)?;
        let body = if is_whole(&body, row.get(2)?) { decode(body.into()) } else { None };
        let Some(chunks) = body else {
            let details = format!("the stored chunks of row {seq} from {first} on are damaged");
            return Ok(Err(details));
        };
        answer.take(&Page { first, chunks });
    }
    Ok(Ok(answer.page))
}

/// Deletes all pages of the job.
pub(crate) fn delete(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM chunk WHERE seq = ?1")?.execute(params![integer(seq)])?;
    Ok(())
}
