//! Writes usage to the tables and reads it.
//!
//! Rows are absolute and only grow, and the row with more jobs is the newer one. So rows may arrive
//! in any order: a newer state from memory, and later an older state from the journal's segment
//! that is checkpointed.
//!
//! **A wrong clock deletes no bill.** Rows expire by the wall clock, but at most
//! [`EXPIRED_EACH_HOUR`] hours of the bill expire in each hour that really passes. A clock that is
//! years ahead hides the old rows, and they are shown again once it is right.

use std::cell::Cell;
use std::time::Duration;

use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::usage::{
    Hour, NEWEST_HOURS, UsageFilter, UsageKey, UsageQuery, UsageRow, UsageSum,
};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use crate::database::Database;
use crate::db::Sync;
use crate::error::Failure;
use crate::journal::image::UsageImage;
use crate::newest_usage::NewestUsage;
use crate::row::{integer, invalid};

/// Most hours of the bill that are deleted in each hour that passes. Two, so that the store catches
/// up after the host was down.
const EXPIRED_EACH_HOUR: u32 = 2;

/// When a part of the bill was deleted last, by the clock that never jumps.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    last: Cell<Option<Duration>>,
}

impl Expiry {
    /// The first hour that is kept, when rows begin with `oldest` and those before `first_kept` are
    /// too old.
    fn first_kept(&self, oldest: Hour, first_kept: Hour, elapsed: Duration) -> Hour {
        let hour = Duration::from_secs(3_600);
        let is_early = self.last.get().is_some_and(|last| elapsed.saturating_sub(last) < hour);
        let allowed = if is_early { 0 } else { EXPIRED_EACH_HOUR };
        first_kept.min(Hour(oldest.0.saturating_add(allowed)))
    }
}

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

/// Reads the usage of the newest hours by template, as far as it is in the table.
pub(crate) fn load_newest(
    db: &Connection,
    newest: &mut NewestUsage,
    now: Hour,
) -> rusqlite::Result<()> {
    let hours = Hour(now.0.saturating_sub(NEWEST_HOURS))..Hour(now.0.saturating_add(1));
    let filter = UsageFilter::default();
    let query = UsageQuery { hours, filter, after: None, rows_max: usize::MAX };
    for UsageRow { key, sum } in read(db, &query, Hour::default())? {
        newest.add(key.hour, &key.template, &key.owner, &sum);
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

impl Database {
    /// Writes the visible usage to the table, and deletes rows that are too old.
    pub(crate) fn store_usage(&self) -> Result<(), Failure> {
        let rows = self.shared.index().meters.unstored();
        if rows.is_empty() {
            return Ok(());
        }
        let too_old = Hour::of(self.shared.clock.now()).first_kept();
        let (expiry, elapsed) = (&self.bill_expiry, self.shared.clock.elapsed());
        // The journal has the same rows, so a crash may undo this commit.
        let has_expired = self.db.transaction(Sync::Later, |db| {
            rows.iter().try_for_each(|row| put(db, &UsageImage::of(row)))?;
            let oldest = db
                .prepare_cached("SELECT min(hour) FROM usage")?
                .query_row((), |row| row.get(0))
                .map(Hour)?;
            let first_kept = expiry.first_kept(oldest, too_old, elapsed);
            db.prepare_cached("DELETE FROM usage WHERE hour < ?1")?.execute([first_kept.0])?;
            Ok(first_kept > oldest)
        })?;
        if has_expired {
            expiry.last.set(Some(elapsed));
        }
        self.shared.index().meters.stored(rows);
        Ok(())
    }

    /// The rows of a query.
    pub(crate) fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageRow>, Failure> {
        self.store_usage()?;
        let first_kept = Hour::of(self.shared.clock.now()).first_kept();
        Ok(read(self.db.connection(), query, first_kept)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_of_the_bill_expire_only_while_hours_pass() {
        let expiry = Expiry::default();
        let first_kept = |oldest, too_old, passed_s| {
            expiry.first_kept(Hour(oldest), Hour(too_old), Duration::from_secs(passed_s)).0
        };
        assert_eq!(first_kept(1_000, 900, 0), 900, "nothing is too old");
        assert_eq!(first_kept(1_000, 1_001, 0), 1_001);
        // The clock has jumped, after a year and at the start.
        for passed_s in [365 * 86_400, 0] {
            assert_eq!(first_kept(1_000, 90_000, passed_s), 1_002);
        }
        expiry.last.set(Some(Duration::from_secs(7)));
        assert_eq!(first_kept(1_002, 90_000, 3_606), 1_002);
        assert_eq!(first_kept(1_002, 90_000, 3_607), 1_004);
        assert_eq!(first_kept(u32::MAX, u32::MAX, 9_999), u32::MAX);
    }
}
