//! The tables, and their versions.
//!
//! A version is a file in `migrations/` that leads to it from the version before, so a new file has
//! the tables by all of them in turn. The header of the file (`user_version`) has its version,
//! which also counts changes of the journal's frames. A host reads the versions of its [`Schema`],
//! and upgrades a directory of an older one when it opens it. `check`, `repair` and `import` read
//! such a directory as it is.
//!
//! Tables are keyed by a growing number, so that every insertion is at their end. Only `job` has
//! secondary indexes: of the rows that memory has, which one scan reads when the store is opened,
//! and of the archived rows, which are looked up one by one. All other lookups happen in memory.
//!
//! * `meta`: one row. `shard` is that in the ids of jobs; `sealed` is a text that only the right
//!   key decrypts; `is_clean` is 1 only between an orderly close and the next start; `checkpointed`
//!   is the last segment of the journal that is checkpointed; `journal_last` is a segment that
//!   exists, the newest one when it was recorded, and 0 before the first start has ended its
//!   repair; `journal_end` is its end, between an orderly close and the next start; `seen_at` is
//!   the newest time that the host has recorded; `starts` is the
//!   [epoch](gristmill_core::job::record::StoreEpoch).
//! * `endpoint`: endpoints that had jobs, with their counts over their whole life.
//! * `job`: one row for each job. State codes are those of `format::status_code`; times are
//!   milliseconds since the Unix epoch. The columns up to `trace` never change. `result_bytes`
//!   counts the output and the chunks of the last attempt. `queued_at` is null for a job that was
//!   queued only once, by its submission. `past` has the attempts before the last one, and the
//!   usage of all, in the encoding of `format/past.rs`; null without both. `archived` is 1 when
//!   memory does not have the job any more; then `purge_at` is the time of its deletion, and
//!   `delivered` the number of chunks that a client has read, null without a reader. In other rows
//!   both mean nothing. `tags` has the lines of [`Tags`](gristmill_core::job::tags::Tags); null
//!   without one.
//! * `job_tag`, `archived_time`: by which archived jobs are found: see `found_by.rs`.
//! * `archived`: the number of archived jobs and their bytes, by endpoint and owner: see
//!   `archived.rs`.
//! * `input`, `output`: payloads, apart from `job` so that a change of state stays small. A job
//!   that can never run again has no input. `s3` is encrypted JSON. If a FAILED job's row has only
//!   the beginning of its error, its output has the whole error.
//! * `sum` in all tables of payloads: the CRC-32 of `body`.
//! * `kept`: the locations of inputs and outputs that stay in the journal. Codes of kinds are in
//!   `payloads.rs`.
//! * `chunk`: pages of stream chunks, by job and index of the page's first chunk.
//! * `repeat`: idempotency records, by the number of their job, which may be deleted.
//! * `usage`: usage by hours since the Unix epoch, with names instead of numbers, since a row
//!   outlives the named objects. `run` is explained in `meters.rs`.
//! * `catalog`: templates, endpoints, components, images and keys, as encrypted JSON.
//! * `job_action`: actions on many jobs, as JSON.
//! * `schedule`: what the scheduler has noted about each schedule, as JSON.
//! * `deleting`: see `deleting.rs`.
//! * `delivery`: pending webhooks, and the newest that have ended. State codes are in
//!   `delivery.rs`; `at` is the time of the next attempt, or of the end; `made` has the times of
//!   the attempts, as CBOR; null without one.
//! * `delivery_body`: the bytes that a pending webhook sends; separate from, and independent of,
//!   the job's rows.

use std::ops::RangeInclusive;

use refinery_core::{Migration, Runner, Target};
use rusqlite::Connection;

/// Marks a database file as ours ("Grml"). The first migration writes it.
pub(crate) const APPLICATION_ID: i64 = 0x4772_6d6c;

/// The versions that a program reads, and the steps between them. Tests open stores with fictitious
/// ones.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// The oldest version that is read. A directory of it is upgraded when it is opened.
    pub oldest: i64,
    /// The version that is written. A directory of a greater one is refused.
    pub newest: i64,
    /// The migrations to versions 1, 2 and so on: the name `V1__…` and the SQL, which sets
    /// `user_version`. A migration never changes: there are tables that were made by it.
    pub migrations: &'static [(&'static str, &'static str)],
}

impl Schema {
    /// The schema of this program.
    pub const PRODUCT: Self = Self {
        oldest: 1,
        newest: 1,
        migrations: &[("V1__tables", include_str!("migrations/V1__tables.sql"))],
    };

    /// The versions that are read.
    pub(crate) fn reads(&self) -> RangeInclusive<i64> {
        self.oldest..=self.newest
    }
}

/// The library's table of the migrations that were made. It exists only during a migration: the
/// version in the file's header alone counts.
pub(crate) const HISTORY: &str = "refinery_schema_history";

/// Makes the tables of a new file.
///
/// # Errors
/// When the file cannot be written. It has no tables still.
pub(crate) fn create(db: &mut Connection) -> rusqlite::Result<()> {
    migrate(db, &Schema::PRODUCT, 0)
}

/// Brings the tables from the version `from` to the newest one in one transaction; 0 is a file
/// without tables.
///
/// # Errors
/// When the file cannot be written. The tables have the version `from` still.
pub(crate) fn migrate(db: &mut Connection, schema: &Schema, from: i64) -> rusqlite::Result<()> {
    let forget = format!("DROP TABLE IF EXISTS {HISTORY}");
    // An interrupted start may have left it.
    db.execute_batch(&forget)?;
    let migrations: Result<Vec<_>, _> =
        schema.migrations.iter().map(|(name, sql)| Migration::unapplied(name, sql)).collect();
    let migrations = migrations.map_err(of_library)?;
    let mut run = |target| {
        Runner::new(&migrations).set_grouped(true).set_target(target).run(db).map_err(of_library)
    };
    let number = |version| i32::try_from(version).unwrap_or(i32::MAX);
    if from > 0 {
        run(Target::FakeVersion(number(from)))?;
    }
    run(Target::Version(number(schema.newest)))?;
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

    const TABLES: (&str, &str) = Schema::PRODUCT.migrations[0];

    /// Of a later program.
    const LATER: Schema = Schema {
        newest: 3,
        migrations: &[
            TABLES,
            ("V2__weight", "ALTER TABLE job ADD COLUMN weight INTEGER; PRAGMA user_version = 2"),
            ("V3__sack", "CREATE TABLE sack (seq INTEGER PRIMARY KEY); PRAGMA user_version = 3"),
        ],
        ..Schema::PRODUCT
    };

    #[test]
    fn tables_of_all_versions_become_those_of_a_new_file() {
        for schema in [Schema::PRODUCT, LATER] {
            let mut new = Connection::open_in_memory().unwrap();
            migrate(&mut new, &schema, 0).unwrap();
            assert_eq!(version(&new), schema.newest);
            assert_eq!(schema.migrations.len(), usize::try_from(schema.newest).unwrap());
            for from in schema.oldest..=schema.newest {
                let mut db = Connection::open_in_memory().unwrap();
                migrate(&mut db, &Schema { newest: from, ..schema }, 0).unwrap();
                assert_eq!(version(&db), from);
                migrate(&mut db, &schema, from).unwrap();
                assert_eq!(version(&db), schema.newest);
                assert_eq!(tables(&db), tables(&new), "from {from}");
            }
            assert!(!new.table_exists(None, HISTORY).unwrap());
        }
    }

    #[test]
    fn a_migration_that_fails_leaves_the_tables_as_they_were() {
        let mut db = Connection::open_in_memory().unwrap();
        create(&mut db).unwrap();
        db.execute_batch("CREATE TABLE sack (seq TEXT)").unwrap();
        let before = tables(&db);
        assert!(migrate(&mut db, &LATER, 1).is_err(), "the last step makes the same table");
        assert_eq!((version(&db), tables(&db)), (1, before));
    }
}
