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
    let settings = ServerSettings {
        version: row.get(0),
        shown_version: row.get(1),
        synchronous_commit: row.get(2),
        fsync: row.get(3),
        is_read_only: row.get(4),
    };
    settings.fault().map_or(Ok(()), |reason| Err(NotReady::Unsuitable(reason)))
}

/// The settings of a server, on which the safety of the jobs depends.
#[derive(Debug, Clone, Copy)]
struct ServerSettings<'a> {
    version: i32,
    shown_version: &'a str,
    synchronous_commit: &'a str,
    fsync: &'a str,
    is_read_only: bool,
}

impl ServerSettings<'_> {
    /// The reason why a host does not use the server.
    fn fault(self) -> Option<String> {
        let Self { version, shown_version, synchronous_commit, fsync, is_read_only } = self;
        if version < SERVER_VERSION_MIN {
            return Some(format!(
                "the server is PostgreSQL {shown_version}, and at least 15 is needed"
            ));
        }
        if is_read_only {
            return Some(
                "the server is read only, as a standby is: name the primary server".to_owned(),
            );
        }
        if !["on", "remote_apply"].contains(&synchronous_commit) {
            return Some(format!(
                "synchronous_commit is `{synchronous_commit}`, so a crash of the server could lose \
                 acknowledged jobs: set it to `on` or `remote_apply`"
            ));
        }
        (fsync != "on").then(|| {
            "fsync is `off`, so a crash of the server could lose acknowledged jobs: set it to `on`"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_could_lose_jobs_is_refused() {
        let good = ServerSettings {
            version: 150_018,
            shown_version: "15.18 (Debian 15.18-0+deb12u1)",
            synchronous_commit: "on",
            fsync: "on",
            is_read_only: false,
        };
        assert_eq!(good.fault(), None);
        for synchronous_commit in ["on", "remote_apply"] {
            assert_eq!(ServerSettings { synchronous_commit, ..good }.fault(), None);
        }
        let old = ServerSettings { version: 140_022, shown_version: "14.22", ..good };
        let reason = "the server is PostgreSQL 14.22, and at least 15 is needed";
        assert_eq!(old.fault().as_deref(), Some(reason));
        for (settings, part) in [
            (ServerSettings { version: 149_999, ..good }, "at least 15 is needed"),
            (ServerSettings { is_read_only: true, ..good }, "name the primary server"),
            (ServerSettings { synchronous_commit: "off", ..good }, "synchronous_commit is `off`"),
            (
                ServerSettings { synchronous_commit: "local", ..good },
                "synchronous_commit is `local`",
            ),
            (ServerSettings { synchronous_commit: "remote_write", ..good }, "is `remote_write`"),
            (ServerSettings { fsync: "off", ..good }, "fsync is `off`"),
        ] {
            let fault = settings.fault().unwrap();
            assert!(fault.contains(part), "{fault}");
        }
    }
}
