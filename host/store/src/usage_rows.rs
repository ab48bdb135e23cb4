//! How usage is written and read.
//!
//! Rows are absolute and only grow, and the row with more jobs is the newer one. So it does not
//! matter in which order a row comes here: from memory, or later once more, and older, with the
//! segment of the journal in which it was written first.

use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::usage::{Hour, UsageKey, UsageQuery, UsageRow, UsageSum};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use crate::database::Database;
use crate::db::Sync;
use crate::error::Failure;
use crate::journal::image::UsageImage;
use crate::row::{integer, invalid};

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

/// Adds a row, or makes it newer.
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

/// The greatest number of a run; 0 without any.
pub(crate) fn last_run(db: &Connection) -> rusqlite::Result<u32> {
    db.query_row("SELECT coalesce(max(run), 0) FROM usage", (), |row| row.get(0))
}

/// The rows that a query wants, beginning with the first hour that is still shown.
fn read(db: &Connection, query: &UsageQuery, first_kept: Hour) -> rusqlite::Result<Vec<UsageRow>> {
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

impl Database {
    /// Takes over the usage that is visible, and lets go of what is too old.
    pub(crate) fn store_usage(&self) -> Result<(), Failure> {
        let rows = self.shared.index().meters.unstored();
        if rows.is_empty() {
            return Ok(());
        }
        let first_kept = Hour::of(self.shared.clock.now()).first_kept();
        // The journal has it, so a crash may take it back.
        self.db.transaction(Sync::Later, |db| {
            rows.iter().try_for_each(|row| put(db, &UsageImage::of(row)))?;
            db.prepare_cached("DELETE FROM usage WHERE hour < ?1")?.execute([first_kept.0])
        })?;
        self.shared.index().meters.stored(rows);
        Ok(())
    }

    /// The rows that a query wants.
    pub(crate) fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, Failure> {
        self.store_usage()?;
        let first_kept = Hour::of(self.shared.clock.now()).first_kept();
        Ok(read(self.db.connection(), query, first_kept)?)
    }
}
