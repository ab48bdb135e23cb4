//! How numbers and checks are expressed in SQL, for all tables.

use rusqlite::types::Type;
use rusqlite::{Connection, ErrorCode, Row};

use crate::journal::checksum;

/// A number as SQLite stores it. Numbers over 2^63 - 1 are stored as 2^63 - 1, which means "never"
/// for a time.
pub(crate) fn integer(number: impl Into<u64>) -> i64 {
    i64::try_from(number.into()).unwrap_or(i64::MAX)
}

/// Whether `body` matches its checksum in the tables.
pub(crate) fn is_whole(body: &[u8], sum: u32) -> bool {
    sum == checksum::of(body)
}

/// The error for a column with an invalid value.
pub(crate) fn invalid(
    column: usize,
    kind: Type,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, error.into())
}

/// Separates the error of one row, whose values are invalid, from an error of the file that is
/// written: the outer error.
pub(crate) fn of_row<T>(result: rusqlite::Result<T>) -> rusqlite::Result<rusqlite::Result<T>> {
    let is_of_file = |error: &rusqlite::Error| {
        let of_row = [ErrorCode::ConstraintViolation, ErrorCode::TypeMismatch, ErrorCode::TooBig];
        error.sqlite_error_code().is_some_and(|code| !of_row.contains(&code))
    };
    match result {
        Err(error) if is_of_file(&error) => Err(error),
        result => Ok(result),
    }
}

/// Passes the first column of every row of a query, a number, to `take`, with what `read` makes of
/// the row, or its error.
pub(crate) fn each_row<T>(
    db: &Connection,
    sql: &str,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    mut take: impl FnMut(i64, rusqlite::Result<T>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        take(row.get(0)?, read(row))?;
    }
    Ok(())
}

/// The first column of all rows.
pub(crate) fn list<T: rusqlite::types::FromSql>(
    db: &Connection,
    sql: &str,
) -> rusqlite::Result<Vec<T>> {
    db.prepare(sql)?.query_map((), |row| row.get(0))?.collect()
}

#[cfg(test)]
mod tests {
    use gristmill_core::time::Timestamp;

    use super::*;

    /// A disk without space must not make each row a damaged one.
    #[test]
    fn an_error_of_the_file_is_no_error_of_a_row() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (n INTEGER NOT NULL, body BLOB) STRICT").unwrap();
        for sql in ["INSERT INTO t (n) VALUES (NULL)", "INSERT INTO t (n) VALUES ('text')"] {
            assert!(of_row(db.execute(sql, ())).unwrap().is_err(), "{sql}");
        }
        assert!(of_row::<()>(Err(invalid(0, Type::Null, "no end"))).unwrap().is_err());
        db.pragma_update(None, "max_page_count", 4).unwrap();
        let full = of_row(db.execute("INSERT INTO t VALUES (1, zeroblob(100000))", ()));
        assert_eq!(full.unwrap_err().sqlite_error_code(), Some(ErrorCode::DiskFull));
    }

    #[test]
    fn never_survives_as_a_time_that_does_not_come() {
        assert_eq!(integer(Timestamp::NEVER.as_millis()), i64::MAX);
    }
}
