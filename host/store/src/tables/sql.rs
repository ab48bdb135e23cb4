//! How numbers and checks are expressed in SQL, for all tables.

use rusqlite::Connection;
use rusqlite::types::Type;

use crate::journal::checksum;

/// A number as SQLite stores it. Numbers over 2^63 - 1 are stored as 2^63 - 1, which means "never"
/// for a time.
pub(crate) fn integer(number: impl Into<u64>) -> i64 {
    i64::try_from(number.into()).unwrap_or(i64::MAX)
}

/// Whether `body` matches its checksum in the tables. Rows of version 6 have no checksum.
pub(crate) fn is_whole(body: &[u8], sum: Option<u32>) -> bool {
    sum.is_none_or(|expected| expected == checksum::of(body))
}

/// The error for a column with an invalid value.
pub(crate) fn invalid(
    column: usize,
    kind: Type,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, error.into())
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

    #[test]
    fn never_survives_as_a_time_that_does_not_come() {
        assert_eq!(integer(Timestamp::NEVER.as_millis()), i64::MAX);
    }
}
