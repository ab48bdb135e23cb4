//! The catalog on disk: one row for each entry, with the entry as encrypted JSON.

use gristmill_core::catalog::{CatalogChange, CatalogEntry};
use rusqlite::Connection;
use rusqlite::types::Type;

use crate::format::CatalogRow;
use crate::seal::Seal;
use crate::tables::sql::invalid;

/// The finding of a repair without the key.
pub(crate) const NOT_READ: &str = "the catalog cannot be read without the key of the stored secrets: \
    name the key's file with --secrets-key";

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

/// The encrypted body of an entry, since entries contain secrets.
pub(crate) fn seal(seal: &Seal, entry: &CatalogRow, body: &str) -> Vec<u8> {
    seal.seal(body.as_bytes(), &purpose(entry.kind, &entry.name))
}

pub(crate) fn purpose(kind: &str, name: &str) -> String {
    format!("catalog {kind} {name}")
}

/// The bodies of all rows.
///
/// # Errors
/// Those of the tables, and the first row whose body cannot be decrypted.
pub(crate) fn read(db: &Connection, seal: &Seal) -> rusqlite::Result<Vec<String>> {
    let mut bodies = Vec::new();
    each(db, seal, |kind, name, body| {
        let body = body.ok_or_else(|| {
            let reason = format!("the {kind} `{name}` of the catalog cannot be decrypted");
            invalid(2, Type::Blob, reason)
        })?;
        bodies.push(body);
        Ok(())
    })?;
    Ok(bodies)
}

/// Calls `look` with the kind, the name and the body of each row. `None`: the body cannot be
/// decrypted, because it is damaged or was encrypted with another key.
///
/// # Errors
/// Those of the tables and of `look`.
pub(crate) fn each(
    db: &Connection,
    seal: &Seal,
    mut look: impl FnMut(&str, &str, Option<String>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement =
        db.prepare_cached("SELECT kind, name, body FROM catalog ORDER BY kind, name")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let (kind, name) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
        let body = seal.open_text(row.get_ref(2)?.as_blob()?, &purpose(kind, name));
        look(kind, name, body.and_then(|body| String::from_utf8(body).ok()))?;
    }
    Ok(())
}

/// Parses the entry of a body.
///
/// # Errors
/// When the body is not an entry. Opening a store checks all bodies.
pub(crate) fn parse(body: &str) -> serde_json::Result<CatalogEntry> {
    serde_json::from_str(body)
}
