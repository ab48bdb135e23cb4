//! Inputs and outputs: rows of their own, so that a change of state does not rewrite them, and a
//! cache in front. Everything else in this crate handles payloads through this file only; large
//! ones can move out of the database without being noticed.

use std::sync::Arc;

use gristmill_core::payload::Json;
use gristmill_core::record::S3Config;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use crate::row::{integer, invalid};
use crate::seal::Seal;

/// The input of a job with what belongs to it, or an output.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub(crate) body: Json,
    pub(crate) s3_config: Option<Arc<S3Config>>,
}

impl Payload {
    pub(crate) fn len(&self) -> usize {
        let s3 = self.s3_config.as_ref().map_or(0, |s3| {
            [&s3.access_id, &s3.access_secret, &s3.bucket_name, &s3.endpoint_url]
                .map(String::len)
                .iter()
                .sum()
        });
        self.body.len() + s3
    }
}

/// Which payload of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Input,
    Output,
}

/// The payloads that were written or read last, up to a number of bytes. Misses cost a wait for
/// the writer thread.
pub(crate) struct PayloadCache(Cache<(u64, Kind), Payload, Size>);

#[derive(Debug, Clone)]
struct Size;

impl Weighter<(u64, Kind), Payload> for Size {
    fn weight(&self, _: &(u64, Kind), payload: &Payload) -> u64 {
        const ENTRY: usize = 128;
        (ENTRY + payload.len()) as u64
    }
}

impl std::fmt::Debug for PayloadCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PayloadCache").field("bytes", &self.0.weight()).finish_non_exhaustive()
    }
}

impl PayloadCache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        const TYPICAL_BYTES: u64 = 1_024;
        let count = usize::try_from(bytes_max / TYPICAL_BYTES).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(count, bytes_max, Size))
    }

    pub(crate) fn get(&self, seq: u64, kind: Kind) -> Option<Payload> {
        self.0.get(&(seq, kind))
    }

    pub(crate) fn insert(&self, seq: u64, kind: Kind, payload: Payload) {
        self.0.insert((seq, kind), payload);
    }

    pub(crate) fn remove(&self, seq: u64) {
        self.0.remove(&(seq, Kind::Input));
        self.0.remove(&(seq, Kind::Output));
    }
}

/// Writes the payload of a job that has none of the kind yet.
pub(crate) fn put(
    db: &Connection,
    seal: &Seal,
    seq: u64,
    kind: Kind,
    payload: &Payload,
) -> rusqlite::Result<()> {
    let body = payload.body.as_str().as_bytes();
    match kind {
        Kind::Input => {
            let s3 = payload.s3_config.as_ref().map(|s3| {
                let text = serde_json::to_vec(s3.as_ref()).expect("a struct of strings is JSON");
                seal.seal(&text, &s3_place(seq))
            });
            db.prepare_cached("INSERT INTO input (seq, body, s3) VALUES (?1, ?2, ?3)")?
                .execute(params![integer(seq), body, s3])?
        }
        Kind::Output => db
            .prepare_cached("INSERT INTO output (seq, body) VALUES (?1, ?2)")?
            .execute(params![integer(seq), body])?,
    };
    Ok(())
}

/// Where the object-storage settings of a job stand.
fn s3_place(seq: u64) -> String {
    format!("input.s3 {seq}")
}

/// Reads a payload; `None` when the job has none of the kind.
pub(crate) fn get(
    db: &Connection,
    seal: &Seal,
    seq: u64,
    kind: Kind,
) -> rusqlite::Result<Option<Payload>> {
    let sql = match kind {
        Kind::Input => "SELECT body, s3 FROM input WHERE seq = ?1",
        Kind::Output => "SELECT body, NULL FROM output WHERE seq = ?1",
    };
    db.prepare_cached(sql)?
        .query_row(params![integer(seq)], |row| {
            let s3_config = match row.get_ref(1)?.as_blob_or_null()? {
                Some(sealed) => {
                    let text = seal.open_text(sealed, &s3_place(seq));
                    let text = text.ok_or_else(|| invalid(1, Type::Blob, "the seal is broken"))?;
                    let s3: S3Config = serde_json::from_slice(&text)
                        .map_err(|error| invalid(1, Type::Blob, error))?;
                    Some(Arc::new(s3))
                }
                None => None,
            };
            Ok(Payload { body: Json::from_stored(row.get::<_, Vec<u8>>(0)?), s3_config })
        })
        .optional()
}

/// Deletes what was put for the job.
pub(crate) fn delete(db: &Connection, seq: u64, has_output: bool) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM input WHERE seq = ?1")?.execute(params![integer(seq)])?;
    if has_output {
        db.prepare_cached("DELETE FROM output WHERE seq = ?1")?.execute(params![integer(seq)])?;
    }
    Ok(())
}
