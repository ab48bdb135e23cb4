//! Copies the records of a catalog whose table may be damaged.
//!
//! **Promise.** One unreadable page costs the records in this page. The key of a record is a text,
//! so no number leads to the records behind such a page: each kind of records is read from both
//! ends instead. Two unreadable pages with records of one kind also cost the records between them.
//! **Cost.** Each record is read once, and is in memory meanwhile.

use gristmill_core::catalog::CatalogKey;
use rusqlite::{Connection, params};

/// A record's name and its body.
type RecordRow = (String, Vec<u8>);

/// Copies the readable records. Returns a sentence for each kind with records that may be lost.
///
/// # Errors
/// Those of the new tables.
pub(super) fn copy(from: &Connection, to: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut losses = Vec::new();
    for kind in CatalogKey::KINDS {
        let (first, damage) = read(from, kind, "ASC");
        write(to, kind, &first)?;
        let Some(damage) = damage else { continue };
        let (last, damage_from_end) = read(from, kind, "DESC");
        write(to, kind, &last)?;
        if damage_from_end.is_none() {
            // The unreadable page has no record of this kind.
            continue;
        }
        let range = match (first.last(), last.last()) {
            (None, None) => String::new(),
            (Some((after, _)), None) => format!(" after `{after}`"),
            (None, Some((before, _))) => format!(" before `{before}`"),
            (Some((after, _)), Some((before, _))) => format!(" between `{after}` and `{before}`"),
        };
        losses.push(format!(
            "the catalog cannot be read in one place: records of the kind `{kind}`{range} may be \
             lost: {damage}"
        ));
    }
    Ok(losses)
}

/// The records of a kind, in this order of their names, up to the first one that cannot be read.
fn read(from: &Connection, kind: &str, order: &str) -> (Vec<RecordRow>, Option<rusqlite::Error>) {
    let mut found = Vec::new();
    let mut read = || {
        let sql = format!("SELECT name, body FROM catalog WHERE kind = ?1 ORDER BY name {order}");
        let mut statement = from.prepare(&sql)?;
        let mut rows = statement.query([kind])?;
        while let Some(row) = rows.next()? {
            found.push((row.get(0)?, row.get(1)?));
        }
        Ok(())
    };
    let damage = read().err();
    (found, damage)
}

fn write(to: &Connection, kind: &str, rows: &[RecordRow]) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO catalog (kind, name, body) VALUES (?1, ?2, ?3)";
    let mut statement = to.prepare_cached(sql)?;
    rows.iter()
        .try_for_each(|(name, body)| statement.execute(params![kind, name, body]).map(|_| ()))
}
