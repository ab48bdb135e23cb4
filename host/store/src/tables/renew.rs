//! Encrypts the texts in the tables again, with the first key, slice by slice.
//!
//! A slice is one transaction. Cost: decrypts each text, and writes those again that another key
//! has encrypted. A row of `input` is written as a whole. A text that no key decrypts stays as it
//! is and is logged: it is damaged, and no later key would decrypt it either.

use rusqlite::{Connection, params};

use crate::format::payload::s3_place;
use crate::seal::{Renewed, Seal};
use crate::tables::catalog::purpose;
use crate::tables::sql::integer;

/// Rows that are examined in one slice.
const ROWS: usize = 256;

/// Bytes of written rows after which a slice ends.
const BYTES: usize = 4 << 20;

/// The result of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice<T> {
    /// Texts that were encrypted again.
    pub(crate) count: u64,
    /// The row after which the next slice begins; `None` after the last row.
    pub(crate) next: Option<T>,
}

/// Encrypts catalog rows again, beginning behind the row with this kind and name.
pub(crate) fn catalog(
    db: &Connection,
    seal: &Seal,
    (kind, name): &(String, String),
) -> rusqlite::Result<Slice<(String, String)>> {
    let mut select = db.prepare_cached(
        "SELECT kind, name, body FROM catalog WHERE (kind, name) > (?1, ?2) ORDER BY kind, name",
    )?;
    let mut rows = select.query((kind, name))?;
    let mut found = Found::default();
    while let Some(row) = rows.next()? {
        let key: (String, String) = (row.get(0)?, row.get(1)?);
        let sealed = row.get_ref(2)?.as_blob()?;
        let renewed = seal.renew(sealed, &purpose(&key.0, &key.1));
        let what = || format!("the {} `{}` of the catalog", key.0, key.1);
        if found.is_full_with(&key, renewed, sealed.len(), what) {
            break;
        }
    }
    drop(rows);
    found.write(|(kind, name), body| {
        let sql = "UPDATE catalog SET body = ?3 WHERE kind = ?1 AND name = ?2";
        db.prepare_cached(sql)?.execute(params![kind, name, body])
    })
}

/// Encrypts the settings of inputs again, beginning behind the row with this number.
pub(crate) fn inputs(db: &Connection, seal: &Seal, seq: u64) -> rusqlite::Result<Slice<u64>> {
    let sql = "SELECT seq, s3, length(body) FROM input WHERE seq > ?1 ORDER BY seq";
    let mut select = db.prepare_cached(sql)?;
    let mut rows = select.query([integer(seq)])?;
    let mut found = Found::default();
    while let Some(row) = rows.next()? {
        let seq = row.get::<_, i64>(0)?.unsigned_abs();
        let sealed = row.get_ref(1)?.as_blob_or_null()?;
        let renewed = sealed.map_or(Renewed::Current, |sealed| seal.renew(sealed, &s3_place(seq)));
        let body = usize::try_from(row.get::<_, u32>(2)?).unwrap_or(usize::MAX);
        let bytes = body.saturating_add(sealed.map_or(0, <[u8]>::len));
        if found.is_full_with(&seq, renewed, bytes, || format!("the s3Config of row {seq}")) {
            break;
        }
    }
    drop(rows);
    found.write(|seq, s3| {
        let sql = "UPDATE input SET s3 = ?2 WHERE seq = ?1";
        db.prepare_cached(sql)?.execute(params![integer(*seq), s3])
    })
}

/// The rows of a slice.
struct Found<T> {
    rows: usize,
    bytes: usize,
    renewed: Vec<(T, Vec<u8>)>,
    /// The last row, if the slice is full.
    next: Option<T>,
}

impl<T> Default for Found<T> {
    fn default() -> Self {
        Self { rows: 0, bytes: 0, renewed: Vec::new(), next: None }
    }
}

impl<T: Clone> Found<T> {
    /// Adds a row. Returns whether the slice ends with it.
    fn is_full_with(
        &mut self,
        key: &T,
        renewed: Renewed,
        bytes: usize,
        name: impl Fn() -> String,
    ) -> bool {
        self.rows += 1;
        match renewed {
            Renewed::Current => {}
            Renewed::Again(text) => {
                self.bytes = self.bytes.saturating_add(bytes);
                self.renewed.push((key.clone(), text));
            }
            Renewed::Unreadable => {
                tracing::error!("{} cannot be decrypted; it is damaged and stays as it is", name());
            }
        }
        let is_full = self.rows >= ROWS || self.bytes >= BYTES;
        self.next = is_full.then(|| key.clone());
        is_full
    }

    fn write(
        self,
        mut write: impl FnMut(&T, Vec<u8>) -> rusqlite::Result<usize>,
    ) -> rusqlite::Result<Slice<T>> {
        let count = self.renewed.len() as u64;
        for (key, text) in self.renewed {
            write(&key, text)?;
        }
        Ok(Slice { count, next: self.next })
    }
}
