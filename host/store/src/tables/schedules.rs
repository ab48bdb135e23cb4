//! The notes of schedules.

use gristmill_core::job::note::{ScheduleNote, ScheduleNumber};
use rusqlite::types::Type;
use rusqlite::{Connection, Row};

use crate::tables::sql::{each_row, integer, invalid};

/// Replaces the note of a schedule, or removes it.
pub(crate) fn put(db: &Connection, schedule: u64, text: Option<&str>) -> rusqlite::Result<()> {
    let number = integer(schedule);
    match text {
        Some(text) => {
            let sql = "INSERT OR REPLACE INTO schedule (number, note) VALUES (?1, ?2)";
            db.prepare_cached(sql)?.execute((number, text))?;
        }
        None => {
            db.prepare_cached("DELETE FROM schedule WHERE number = ?1")?.execute([number])?;
        }
    }
    Ok(())
}

/// Passes the number of every row to `take`, with the note or the error of the row.
pub(crate) fn each(
    db: &Connection,
    take: impl FnMut(i64, rusqlite::Result<ScheduleNote>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    each_row(db, "SELECT number, note FROM schedule ORDER BY number", read, take)
}

fn read(row: &Row<'_>) -> rusqlite::Result<ScheduleNote> {
    let schedule = ScheduleNumber(row.get::<_, i64>(0)?.unsigned_abs());
    let text = row.get_ref(1)?.as_str()?.to_owned();
    if !text.starts_with('{') {
        return Err(invalid(1, Type::Text, "it is no JSON object"));
    }
    Ok(ScheduleNote { schedule, text })
}
