//! Writes usage to the tables and reads it.
//!
//! Rows are absolute and only grow, and the row with more jobs is the newer one. So rows may arrive
//! in any order: a newer state from memory, and later an older state from the journal's segment
//! that is checkpointed.

use gristmill_core::billing::usage::{
    Hour, NEWEST_HOURS, UsageFilter, UsageKey, UsageQuery, UsageRow, UsageSum,
};
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use rusqlite::types::{Type, Value};
use rusqlite::{Connection, Row, params};

use crate::format::image::UsageImage;
use crate::tables::sql::{integer, invalid};

const PUT: &str = "INSERT INTO usage (hour, endpoint, template, owner, run, jobs, wall_ms, cpu_us, \
     fuel, memory_bytes_peak, memory_mib_ms, bytes_in, bytes_out, chunks) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
     ON CONFLICT DO UPDATE SET jobs = excluded.jobs, wall_ms = excluded.wall_ms, \
     cpu_us = excluded.cpu_us, fuel = excluded.fuel, \
     memory_bytes_peak = excluded.memory_bytes_peak, memory_mib_ms = excluded.memory_mib_ms, \
     bytes_in = excluded.bytes_in, bytes_out = excluded.bytes_out, chunks = excluded.chunks \
     WHERE excluded.jobs > usage.jobs";

/// Without the runs: an hour may have several.
const SELECT: &str = "SELECT hour, endpoint, template, owner, sum(jobs), sum(wall_ms), sum(cpu_us), \
     sum(fuel), max(memory_bytes_peak), sum(memory_mib_ms), sum(bytes_in), sum(bytes_out), \
     sum(chunks) FROM usage WHERE hour >= ?1 AND hour < ?2 \
     AND (hour, endpoint, template, owner) > (?3, ?4, ?5, ?6) \
     AND (?7 IS NULL OR endpoint = ?7) AND (?8 IS NULL OR template = ?8) \
     AND (?9 IS NULL OR owner = ?9) \
     GROUP BY hour, endpoint, template, owner ORDER BY hour, endpoint, template, owner LIMIT ?10";

/// Adds a row, or replaces an older state of it.
pub(crate) fn put(db: &Connection, row: &UsageImage<'_>) -> rusqlite::Result<()> {
    let UsageImage { endpoint, template, owner, hour, run, sum } = row;
    let [jobs, wall_ms, cpu_us, fuel, memory_peak, memory_mib_ms, bytes_in, bytes_out, chunks] =
        sum.map(integer);
    db.prepare_cached(PUT)?.execute(params![
        hour,
        endpoint,
        template,
        owner,
        run,
        jobs,
        wall_ms,
        cpu_us,
        fuel,
        memory_peak,
        memory_mib_ms,
        bytes_in,
        bytes_out,
        chunks
    ])?;
    Ok(())
}

/// The greatest number of a run; 0 if there are no rows.
pub(crate) fn last_run(db: &Connection) -> rusqlite::Result<u32> {
    db.query_row("SELECT coalesce(max(run), 0) FROM usage", (), |row| row.get(0))
}

/// The rows of a query, beginning with the first hour that is still shown.
pub(crate) fn read(
    db: &Connection,
    query: &UsageQuery,
    first_kept: Hour,
) -> rusqlite::Result<Vec<UsageRow>> {
    let mut statement = db.prepare_cached(SELECT)?;
    let after = query.after.as_ref();
    let rows = statement.query_map(
        params![
            query.hours.start.max(first_kept).0,
            query.hours.end.0,
            after.map_or(-1, |after| i64::from(after.hour.0)),
            after.map_or("", |after| after.endpoint.as_str()),
            after.map_or("", |after| after.template.as_str()),
            after.map_or("", |after| after.owner.as_str()),
            query.filter.endpoint.as_ref().map(EndpointId::as_str),
            query.filter.template.as_ref().map(TemplateId::as_str),
            query.filter.owner.as_ref().map(OwnerId::as_str),
            integer(query.rows_max as u64),
        ],
        row,
    )?;
    rows.collect()
}

/// The usage of the newest hours, as far as it is in the table.
pub(crate) fn newest(db: &Connection, now: Hour) -> rusqlite::Result<Vec<UsageRow>> {
    let hours = Hour(now.0.saturating_sub(NEWEST_HOURS))..Hour(now.0.saturating_add(1));
    let filter = UsageFilter::default();
    let query = UsageQuery { hours, filter, after: None, rows_max: usize::MAX };
    read(db, &query, Hour::default())
}

/// The oldest hour with a row. There must be one.
pub(crate) fn oldest(db: &Connection) -> rusqlite::Result<Hour> {
    let mut statement = db.prepare_cached("SELECT min(hour) FROM usage")?;
    statement.query_row((), |row| row.get(0)).map(Hour)
}

/// Removes the rows before an hour.
pub(crate) fn delete_before(db: &Connection, first_kept: Hour) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM usage WHERE hour < ?1")?.execute([first_kept.0])?;
    Ok(())
}

/// The columns of the key, in its order.
pub(crate) const KEY: [&str; 5] = ["hour", "endpoint", "template", "owner", "run"];

/// Passes the key of each row that cannot be shown to `take`, with the error.
pub(crate) fn each_damaged(
    db: &Connection,
    mut take: impl FnMut([Value; KEY.len()], rusqlite::Error),
) -> rusqlite::Result<()> {
    let mut statement = db.prepare(
        "SELECT hour, endpoint, template, owner, jobs, wall_ms, cpu_us, fuel, memory_bytes_peak, \
         memory_mib_ms, bytes_in, bytes_out, chunks, run FROM usage",
    )?;
    let mut rows = statement.query(())?;
    while let Some(found) = rows.next()? {
        if let Err(error) = row(found).and_then(|_| found.get::<_, u32>(13)) {
            let key = [0, 1, 2, 3, 13].map(|column| found.get(column).unwrap_or(Value::Null));
            take(key, error);
        }
    }
    Ok(())
}

fn row(row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let wrong = |column| move |error| invalid(column, Type::Text, error);
    Ok(UsageRow {
        key: UsageKey {
            hour: Hour(row.get(0)?),
            endpoint: EndpointId::new(text(1)?).map_err(wrong(1))?,
            template: TemplateId::new(text(2)?).map_err(wrong(2))?,
            owner: OwnerId::new(text(3)?).map_err(wrong(3))?,
        },
        sum: UsageSum {
            jobs: number(4)?,
            wall_ms: number(5)?,
            cpu_us: number(6)?,
            fuel: number(7)?,
            memory_bytes_peak: number(8)?,
            memory_mib_ms: number(9)?,
            bytes_in: number(10)?,
            bytes_out: number(11)?,
            chunks: number(12)?,
        },
    })
}
