//! The tables, and their versions.
//!
//! A version is a file in `migrations/` that leads to it from the version before, so a new file has
//! the tables by all of them in turn. The header of the file (`user_version`) has its version.
//!
//! Tables are keyed by a growing number, so that every insertion is at their end. Only `job` has
//! secondary indexes: of the rows that memory has, which one scan reads when the store is opened, and of
//! the archived rows, which are looked up one by one. All other lookups happen in memory.
//!
//! * `meta`: one row. `is_clean` is 1 only between an orderly close and the next start; `sealed` is
//!   a text that only the right key decrypts; `checkpointed` is the last segment of the journal
//!   that is checkpointed; `journal_last` is a segment that exists, the newest one when it was
//!   recorded; `journal_end` is its end, between an orderly close and the next start; `seen_at` is
//!   the newest time that the host has recorded; `starts` is the [epoch](gristmill_core::job::record::StoreEpoch).
//! * `endpoint`: endpoints that had jobs, with their counts over their whole life.
//! * `job`: one row for each job. State codes are those of `format::status_code`; times are milliseconds since the
//!   Unix epoch. The columns up to `webhook`, and `input_bytes`, never change. `result_bytes`
//!   counts the output and the chunks of the last attempt. `queued_at` is null for a job that was
//!   queued only once, by its submission. `past` has the attempts before the last one, and the
//!   usage of all, in the encoding of `format/past.rs`; null without both. `archived` is 1 when memory does not have the job
//!   any more; then `purge_at` is the time of its deletion, and `delivered` the number of chunks that a client
//!   has read, null without a reader. In other rows both mean nothing.
//!   `tags` has the lines of [`Tags`](gristmill_core::job::tags::Tags); null without one.
//! * `job_tag`, `archived_time`: by which archived jobs are found: see `found_by.rs`.
//! * `archived`: the number of archived jobs and their bytes, by endpoint and owner: see `archived.rs`.
//! * `input`, `output`: payloads, apart from `job` so that a change of state stays small. A job
//!   that can never run again has no input. `s3` is encrypted JSON. If a FAILED job's row has only
//!   the beginning of its error, its output has the whole error.
//! * `sum` in all tables of payloads: the CRC-32 of `body`; null in rows of version 6.
//! * `kept`: the locations of inputs and outputs that stay in the journal. Codes of kinds are in
//!   `payloads.rs`.
//! * `chunk`: pages of stream chunks, by job and index of the page's first chunk.
//! * `repeat`: idempotency records, by the number of their job, which may be deleted.
//! * `usage`: usage by hours since the Unix epoch, with names instead of numbers, since a row
//!   outlives the named objects. `run` is explained in `meters.rs`.
//! * `catalog`: templates, endpoints, components, images and keys, as encrypted JSON.
//! * `job_action`: actions on many jobs, as JSON.
//! * `deleting`: see `deleting.rs`.
//! * `delivery`: pending webhooks, and the newest that have ended. State codes are in
//!   `delivery.rs`; `at` is the time of the next attempt, or of the end; `made` has the times of
//!   the attempts, as CBOR; null without one.
//! * `delivery_body`: the bytes that a pending webhook sends; separate from, and independent of,
//!   the job's rows.

use refinery_core::{Migration, Runner, Target};
use rusqlite::Connection;

/// Marks a database file as ours ("Grml"). The first migration writes it.
pub(crate) const APPLICATION_ID: i64 = 0x4772_6d6c;

/// Changes with the tables, and with the content of the journal's frames. A file with a greater
/// number is refused.
pub(crate) const VERSION: i64 = 14;

/// The oldest version that is read. A file of it is upgraded when it is opened.
pub(crate) const VERSION_MIN: i64 = 6;

/// The first version with checksums of payloads, the end of the journal, and the time in `meta`.
pub(crate) const CHECKSUMS_SINCE: i64 = 7;

/// The first version whose jobs can have chosen retentions.
pub(crate) const CHOSEN_RETENTION_SINCE: i64 = 8;

/// The first version whose jobs have their earlier attempts.
pub(crate) const PAST_ATTEMPTS_SINCE: i64 = 9;

/// The first version with archived jobs.
pub(crate) const ARCHIVED_SINCE: i64 = 10;

/// The first version whose jobs have tags.
pub(crate) const TAGS_SINCE: i64 = 11;

/// The first version with actions on many jobs.
pub(crate) const ACTIONS_SINCE: i64 = 12;

/// The first version whose archived jobs have the position in their stream.
pub(crate) const STREAM_POSITIONS_SINCE: i64 = 13;

/// The first version whose jobs and webhooks have their position in a distributed trace.
pub(crate) const TRACES_SINCE: i64 = 14;

/// The migrations by the version to which they lead. A file here never changes: there are tables
/// that were made by it.
const MIGRATIONS: [(&str, &str); 9] = [
    ("V6__tables", include_str!("migrations/V6__tables.sql")),
    ("V7__checksums", include_str!("migrations/V7__checksums.sql")),
    ("V8__numbered_fields", include_str!("migrations/V8__numbered_fields.sql")),
    ("V9__timelines_and_epochs", include_str!("migrations/V9__timelines_and_epochs.sql")),
    ("V10__archived_jobs", include_str!("migrations/V10__archived_jobs.sql")),
    ("V11__tags", include_str!("migrations/V11__tags.sql")),
    ("V12__job_actions", include_str!("migrations/V12__job_actions.sql")),
    ("V13__stream_positions", include_str!("migrations/V13__stream_positions.sql")),
    ("V14__traces", include_str!("migrations/V14__traces.sql")),
];

/// The library's table of the migrations that were made. It exists only during a migration: the
/// version in the file's header alone counts.
pub(crate) const HISTORY: &str = "refinery_schema_history";

/// Brings the tables from `version` to [`VERSION`] in one transaction; 0 is a file without tables.
///
/// # Errors
/// When the file cannot be written. The tables have `version` still.
pub(crate) fn migrate(db: &mut Connection, version: i64) -> rusqlite::Result<()> {
    migrate_to(db, version, VERSION)
}

fn migrate_to(db: &mut Connection, from: i64, to: i64) -> rusqlite::Result<()> {
    let forget = format!("DROP TABLE IF EXISTS {HISTORY}");
    // An interrupted start may have left it.
    db.execute_batch(&forget)?;
    let migrations: Result<Vec<_>, _> =
        MIGRATIONS.iter().map(|(name, sql)| Migration::unapplied(name, sql)).collect();
    let migrations = migrations.map_err(of_library)?;
    let mut run = |target| {
        Runner::new(&migrations).set_grouped(true).set_target(target).run(db).map_err(of_library)
    };
    let number = |version| i32::try_from(version).unwrap_or(i32::MAX);
    if from > 0 {
        run(Target::FakeVersion(number(from)))?;
    }
    run(Target::Version(number(to)))?;
    db.execute_batch(&forget)
}

/// The error of SQLite in an error of the library, if there is one.
fn of_library(error: refinery_core::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and definitions; the index of a primary key has no definition.
    fn tables(db: &Connection) -> Vec<(String, Option<String>)> {
        let sql = "SELECT name, sql FROM sqlite_schema WHERE tbl_name != ?1 ORDER BY name";
        let mut statement = db.prepare(sql).unwrap();
        let rows = statement.query_map([HISTORY], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn version(db: &Connection) -> i64 {
        db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    #[test]
    fn tables_of_all_versions_become_those_of_a_new_file() {
        let mut new = Connection::open_in_memory().unwrap();
        migrate(&mut new, 0).unwrap();
        assert_eq!(version(&new), VERSION);
        for from in VERSION_MIN..=VERSION {
            let mut db = Connection::open_in_memory().unwrap();
            migrate_to(&mut db, 0, from).unwrap();
            assert_eq!(version(&db), from);
            migrate(&mut db, from).unwrap();
            assert_eq!(version(&db), VERSION);
            assert_eq!(tables(&db), tables(&new), "from {from}");
        }
        assert!(!new.table_exists(None, HISTORY).unwrap());
    }

    #[test]
    fn a_migration_that_fails_leaves_the_tables_as_they_were() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate_to(&mut db, 0, 6).unwrap();
        db.execute_batch("DROP TABLE delivery_body").unwrap();
        let before = tables(&db);
        assert!(migrate(&mut db, 6).is_err(), "a table is missing");
        assert_eq!((version(&db), tables(&db)), (6, before));
    }
}
