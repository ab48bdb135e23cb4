//! The tables in PostgreSQL, and their versions.
//!
//! Each file of this folder is one step from a version to the next. All steps that a database lacks are
//! carried out in one transaction, by one host at a time. A later step must leave tables that the program
//! before it can use as well, so that hosts can be upgraded one after the other; where that is impossible,
//! `needs_program` of the step excludes it.

use crate::postgres::connection::{Call, Connection, DatabaseError};

/// The steps, in order. The number of a step is its position, beginning with 1.
const STEPS: [Step; 2] = [
    Step { sql: include_str!("0001.sql"), needs_program: 1 },
    Step { sql: include_str!("0002.sql"), needs_program: 1 },
];

struct Step {
    sql: &'static str,
    /// The oldest program that can use the tables after this step, by its newest step.
    needs_program: i32,
}

/// The version of the tables that this program makes.
pub(crate) const VERSION: i32 = STEPS.len() as i32;

/// The oldest server that this store is tested with, as the server writes its version.
const SERVER_VERSION_MIN: i32 = 150_000;

/// Why the tables cannot be used.
#[derive(Debug)]
pub(crate) enum NotReady {
    /// A newer program has made the tables.
    Newer {
        found: i32,
    },
    /// The server's settings, or its version, could lose acknowledged jobs.
    Unsuitable(String),
    Failed(DatabaseError),
}

impl From<DatabaseError> for NotReady {
    fn from(error: DatabaseError) -> Self {
        Self::Failed(error)
    }
}

/// Checks the server, and brings the tables to this program's version.
pub(crate) fn prepare(connection: &mut Connection) -> Result<(), NotReady> {
    check_server(connection)?;
    let head = "BEGIN; SELECT pg_advisory_xact_lock(x'677269736d696c6c'::bigint); \
         CREATE SCHEMA IF NOT EXISTS gristmill; \
         CREATE TABLE IF NOT EXISTS gristmill.schema_version \
         (version integer PRIMARY KEY, needs_program integer NOT NULL); COMMIT";
    connection.script(head)?;
    let sql = "SELECT version, needs_program FROM schema_version ORDER BY version DESC LIMIT 1";
    let newest = connection.query(&Call::new(sql, Vec::new()))?;
    let (found, needs_program) =
        newest.first().map_or((0, 0), |row| (row.get::<_, i32>(0), row.get::<_, i32>(1)));
    if needs_program > VERSION {
        return Err(NotReady::Newer { found });
    }
    let missing = (1..).zip(&STEPS).filter(|(version, _)| *version > found);
    let mut script = String::new();
    for (version, Step { sql, needs_program }) in missing {
        // The key refuses a second host that carries out the same step.
        script.push_str(&format!(
            "INSERT INTO schema_version VALUES ({version}, {needs_program});{sql}"
        ));
    }
    if !script.is_empty() {
        connection.script(&format!(
            "BEGIN; SELECT pg_advisory_xact_lock(x'677269736d696c6c'::bigint); {script} COMMIT"
        ))?;
    }
    Ok(())
}

fn check_server(connection: &mut Connection) -> Result<(), NotReady> {
    let sql = "SELECT current_setting('server_version_num')::integer, current_setting('server_version'), \
         current_setting('synchronous_commit'), current_setting('fsync'), \
         pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'";
    let rows = connection.query(&Call::new(sql, Vec::new()))?;
    let Some(row) = rows.first() else { return Ok(()) };
    let unsuitable = |reason: String| Err(NotReady::Unsuitable(reason));
    if row.get::<_, i32>(0) < SERVER_VERSION_MIN {
        let version: &str = row.get(1);
        return unsuitable(format!(
            "the server is PostgreSQL {version}, and at least 15 is needed"
        ));
    }
    if row.get(4) {
        return unsuitable(
            "the server is read only, as a standby is: name the primary server".to_owned(),
        );
    }
    let commit: &str = row.get(2);
    if !["on", "remote_apply"].contains(&commit) {
        return unsuitable(format!(
            "synchronous_commit is `{commit}`, so a crash of the server could lose acknowledged jobs: \
             set it to `on` or `remote_apply`"
        ));
    }
    if row.get::<_, &str>(3) != "on" {
        return unsuitable(
            "fsync is `off`, so a crash of the server could lose acknowledged jobs: set it to `on`"
                .to_owned(),
        );
    }
    Ok(())
}
