//! Inputs and outputs in the tables. They were in the journal first, where large ones stay. Small
//! ones that outlive their segment become separate rows, so that a change of state does not rewrite
//! them.

use gristmill_core::job::payload::Json;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::format::payload::{Found, InputBytes, Kind, Payload, open_s3};
use crate::journal::checksum;
use crate::medium::{PayloadLocation, SegmentId};
use crate::seal::Seal;
use crate::tables::sql::{integer, invalid, is_whole};

/// Writes an input or output to its table, in the bytes of the journal.
pub(crate) fn put(db: &Connection, seq: u64, kind: Kind, bytes: &[u8]) -> rusqlite::Result<()> {
    match kind {
        Kind::Input => {
            let broken = || invalid(1, Type::Blob, "an input in the journal has no end");
            let (body, s3) = InputBytes::split(bytes).ok_or_else(broken)?;
            let sql = "INSERT OR REPLACE INTO input (seq, body, s3, sum) VALUES (?1, ?2, ?3, ?4)";
            db.prepare_cached(sql)?.execute(params![integer(seq), body, s3, checksum::of(body)])?
        }
        Kind::Output => db
            .prepare_cached("INSERT OR REPLACE INTO output (seq, body, sum) VALUES (?1, ?2, ?3)")?
            .execute(params![integer(seq), bytes, checksum::of(bytes)])?,
    };
    Ok(())
}

/// Records the location of an input or output that stays in the journal.
pub(crate) fn keep(
    db: &Connection,
    seq: u64,
    kind: Kind,
    location: PayloadLocation,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO kept (seq, kind, segment, at, len) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        integer(seq),
        kind.code(),
        location.segment.0,
        location.at,
        location.len
    ])?;
    Ok(())
}

/// Removes the recorded location.
pub(crate) fn unkeep(db: &Connection, seq: u64, kind: Kind) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM kept WHERE seq = ?1 AND kind = ?2")?
        .execute(params![integer(seq), kind.code()])?;
    Ok(())
}

/// The number of a job, and the kind and the location of its payload that stays in the journal.
pub(crate) type Kept = (u64, Kind, PayloadLocation);

/// Passes the job's number and the location of each payload that stays in the journal to `take`.
pub(crate) fn load_kept(
    db: &Connection,
    mut take: impl FnMut(u64, Kind, PayloadLocation),
) -> rusqlite::Result<()> {
    for found in each_kept(db)? {
        let (seq, kind, location) = found?;
        take(seq, kind, location);
    }
    Ok(())
}

/// The content of each row of the table `kept`, or its error. The outer error is that of the table.
pub(crate) fn each_kept(db: &Connection) -> rusqlite::Result<Vec<rusqlite::Result<Kept>>> {
    let mut statement = db.prepare("SELECT seq, kind, segment, at, len FROM kept")?;
    let mut rows = statement.query(())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(kept(row));
    }
    Ok(found)
}

fn kept(row: &Row<'_>) -> rusqlite::Result<Kept> {
    let seq = row.get::<_, i64>(0)?.unsigned_abs();
    let in_row = |error: rusqlite::Error| {
        invalid(
            1,
            Type::Integer,
            format!("the payload of row {seq} that stays in the journal: {error}"),
        )
    };
    let kind = Kind::from_code(row.get(1).map_err(in_row)?);
    let unknown = || in_row(invalid(1, Type::Integer, "unknown kind of payload"));
    let location = PayloadLocation {
        segment: SegmentId(row.get(2).map_err(in_row)?),
        at: row.get(3).map_err(in_row)?,
        len: row.get(4).map_err(in_row)?,
    };
    Ok((seq, kind.ok_or_else(unknown)?, location))
}

/// Reads and checks a payload from its table.
pub(crate) fn get(
    db: &Connection,
    seal: &Seal,
    seq: u64,
    kind: Kind,
) -> rusqlite::Result<Found<Payload>> {
    let sql = match kind {
        Kind::Input => "SELECT body, s3, sum FROM input WHERE seq = ?1",
        Kind::Output => "SELECT body, NULL, sum FROM output WHERE seq = ?1",
    };
    let found = db
        .prepare_cached(sql)?
        .query_row(params![integer(seq)], |row| {
            let damaged = |what: &str| format!("the stored {what} of row {seq} is damaged");
            let body: Vec<u8> = row.get(0)?;
            if !is_whole(&body, row.get(2)?) {
                return Ok(Err(damaged(kind.name())));
            }
            let sealed = row.get_ref(1)?.as_blob_or_null()?;
            let s3_config = sealed.map(|sealed| open_s3(sealed, seal, seq));
            if s3_config.as_ref().is_some_and(Option::is_none) {
                return Ok(Err(damaged("s3Config")));
            }
            let s3_config = s3_config.flatten();
            Ok(Ok(Payload { body: Json::from_stored(body), s3_config }))
        })
        .optional()?;
    Ok(found.transpose())
}

/// Deletes the input that the tables may have.
pub(crate) fn delete_input(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM input WHERE seq = ?1")?.execute([integer(seq)])?;
    unkeep(db, seq, Kind::Input)
}

/// Removes an output, if there is one.
pub(crate) fn delete_output(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM output WHERE seq = ?1")?.execute([integer(seq)])?;
    unkeep(db, seq, Kind::Output)
}

/// Deletes the payloads of the job that the tables may have.
pub(crate) fn delete(db: &Connection, seq: u64, has_output: bool) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM input WHERE seq = ?1")?.execute(params![integer(seq)])?;
    db.prepare_cached("DELETE FROM kept WHERE seq = ?1")?.execute(params![integer(seq)])?;
    if has_output {
        db.prepare_cached("DELETE FROM output WHERE seq = ?1")?.execute(params![integer(seq)])?;
    }
    Ok(())
}
