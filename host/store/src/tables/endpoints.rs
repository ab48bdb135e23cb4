//! The rows of endpoints.

use gristmill_core::id::EndpointId;
use gristmill_core::job::record::JobCounts;
use rusqlite::types::Type;
use rusqlite::{Connection, Row};

use crate::format::EndpointKey;
use crate::tables::sql::{each_row, invalid};

/// The number, the name and the counts of an endpoint.
type Found = (EndpointKey, EndpointId, JobCounts);

/// Passes the number of every row to `take`, in ascending order, with the content of the row or its
/// error.
pub(crate) fn each(
    db: &Connection,
    take: impl FnMut(i64, rusqlite::Result<Found>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let sql = "SELECT seq, name, completed, failed, retried FROM endpoint ORDER BY seq";
    each_row(db, sql, read, take)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Found> {
    let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let key = EndpointKey(row.get(0)?);
    let name = EndpointId::new(row.get_ref(1)?.as_str()?)
        .map_err(|error| invalid(1, Type::Text, error))?;
    let counts = JobCounts {
        completed: number(2)?,
        failed: number(3)?,
        retried: number(4)?,
        ..JobCounts::default()
    };
    Ok((key, name, counts))
}
