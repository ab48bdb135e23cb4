//! The tables in PostgreSQL, and their versions.
//!
//! Each file of this folder is one step from a version to the next. All steps that a database lacks
//! are carried out in one transaction, by one host at a time. A later step must leave tables that
//! the program before it can use as well, so that hosts can be upgraded one after the other; where
//! that is impossible, `needs_program` of the step excludes it.

use gristmill_postgres::{Connection, SqlQuery};

use crate::error::OpenError;

/// The steps, in order. The number of a step is its position, beginning with 1.
const STEPS: &[Step] = &[Step { sql: include_str!("0001.sql"), needs_program: 1 }];

#[derive(Clone, Copy)]
struct Step {
    sql: &'static str,
    /// The oldest program that can use the tables after this step, by its newest step.
    needs_program: i32,
}

/// Brings the tables to this program's version.
pub(crate) fn prepare(connection: &mut Connection) -> Result<(), OpenError> {
    prepare_with(connection, STEPS)
}

fn prepare_with(connection: &mut Connection, steps: &[Step]) -> Result<(), OpenError> {
    // Without a notice in the log of the host at each start that the schema exists already.
    let head = "BEGIN; SET LOCAL client_min_messages = warning; SELECT pg_advisory_xact_lock(x'677269736d696c6c'::bigint); \
         CREATE SCHEMA IF NOT EXISTS gristmill; \
         CREATE TABLE IF NOT EXISTS gristmill.schema_version \
         (version integer PRIMARY KEY, needs_program integer NOT NULL); COMMIT";
    connection.script(head)?;
    let sql = "SELECT version, needs_program FROM schema_version ORDER BY version DESC LIMIT 1";
    let newest = connection.query(&SqlQuery::new(sql, Vec::new()))?;
    let (found, needs_program) =
        newest.first().map_or((0, 0), |row| (row.get::<_, i32>(0), row.get::<_, i32>(1)));
    let expected = i32::try_from(steps.len()).unwrap_or(i32::MAX);
    if needs_program > expected {
        return Err(OpenError::UnknownDatabaseVersion { found, expected });
    }
    let missing = (1..).zip(steps).filter(|(version, _)| *version > found);
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

#[cfg(test)]
mod tests {
    use gristmill_postgres::DatabaseUrl;

    use super::*;
    use crate::postgres::server_of_tests::Database;

    const TABLES: Step = STEPS[0];
    const SACK: &str = "CREATE TABLE sack (seq bigint PRIMARY KEY);";

    #[test]
    fn a_later_step_keeps_all_rows_and_decides_which_programs_may_follow() {
        let Some(database) = Database::new() else { return };
        let url: DatabaseUrl = database.url().parse().unwrap();
        let prepare = |steps: &[Step]| prepare_with(&mut Connection::new(&url).unwrap(), steps);
        let rows = || {
            database.sql(
                "SELECT string_agg(version || '/' || needs_program, ' ' ORDER BY version) \
                 FROM schema_version",
            )
        };
        assert!(prepare(STEPS).is_ok());
        database.sql("INSERT INTO endpoint (seq, name) VALUES (1, 'mill')");
        // A step that the program before it can use as well: either host may start then.
        let added = Step { sql: SACK, needs_program: 1 };
        assert!(prepare(&[TABLES, added]).is_ok());
        assert!(prepare(STEPS).is_ok());
        assert_eq!(rows(), "1/1 2/1");
        // A step that excludes it. A failed step has done nothing.
        let failing = Step { sql: SACK, needs_program: 3 };
        assert!(matches!(prepare(&[TABLES, added, failing]), Err(OpenError::Database(_))));
        assert_eq!(rows(), "1/1 2/1");
        let excluding = Step { sql: "ALTER TABLE sack ADD weight bigint;", needs_program: 3 };
        assert!(prepare(&[TABLES, added, excluding]).is_ok());
        assert_eq!(rows(), "1/1 2/1 3/3");
        for steps in [STEPS, &[TABLES, added]] {
            let refused = prepare(steps);
            assert!(matches!(refused, Err(OpenError::UnknownDatabaseVersion { found: 3, .. })));
        }
        assert!(prepare(&[TABLES, added, excluding]).is_ok());
        assert_eq!(database.sql("SELECT name FROM endpoint"), "mill");
        assert_eq!(database.sql("SELECT count(weight) FROM sack"), "0");
    }
}
