//! The catalog on disk: one row for each entry, with the entry as JSON.

use gristmill_core::catalog::{CatalogChange, CatalogEntry};
use rusqlite::Connection;

use crate::tasks::CatalogRow;

/// The change as a row to write.
pub(crate) fn row(change: CatalogChange) -> CatalogRow {
    match change {
        CatalogChange::Put(entry) => {
            let body = serde_json::to_string(&entry).expect("the catalog's types are JSON");
            let key = entry.key();
            CatalogRow { kind: key.kind(), name: key.name(), body: Some(body) }
        }
        CatalogChange::Delete(key) => CatalogRow { kind: key.kind(), name: key.name(), body: None },
    }
}

/// The bodies of all rows.
pub(crate) fn read(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare_cached("SELECT body FROM catalog ORDER BY kind, name")?;
    let bodies = statement.query_map((), |row| row.get(0))?;
    bodies.collect()
}

/// The entry that a body stands for.
///
/// # Errors
/// When it is not one. Opening a store checks all of them.
pub(crate) fn parse(body: &str) -> serde_json::Result<CatalogEntry> {
    serde_json::from_str(body)
}
