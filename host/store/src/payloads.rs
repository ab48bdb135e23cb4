//! Inputs and outputs: first in the journal, where large ones stay. Small payloads that outlive
//! their segment become separate rows, so that a change of state does not rewrite them. A cache is
//! in front of the rows.

use std::sync::Arc;

use bytes::Bytes;
use gristmill_core::payload::Json;
use gristmill_core::record::S3Config;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use crate::journal::checksum;
use crate::journal::segment::{JournalLocation, SegmentId};
use crate::row::{integer, invalid};
use crate::seal::Seal;

/// The input of a job with its settings, or an output.
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

/// The kind of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Input,
    Output,
}

impl Kind {
    /// The codes are on disk and must not change.
    fn code(self) -> u8 {
        match self {
            Self::Input => 0,
            Self::Output => 1,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Input, Self::Output].into_iter().find(|kind| kind.code() == code)
    }
}

/// The payloads that were written or read last, up to a number of bytes. A miss costs a system call
/// for a payload in the journal, or else a wait for the database.
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

/// An input in the bytes of the journal: the body, the encrypted object-storage settings, and the
/// length of these. One location covers all of it, and the body is not copied.
#[derive(Debug)]
pub(crate) struct InputBytes {
    pub(crate) body: Bytes,
    pub(crate) rest: Bytes,
}

/// Bytes of the length at the end of an input.
const LENGTH_BYTES: usize = 4;

impl InputBytes {
    pub(crate) fn of(input: &Payload, seal: &Seal, seq: u64) -> Self {
        let sealed = input.s3_config.as_ref().map_or_else(Vec::new, |s3| {
            let text = serde_json::to_vec(s3.as_ref()).expect("a struct of strings is JSON");
            seal.seal(&text, &s3_place(seq))
        });
        let length = u32::try_from(sealed.len()).expect("settings are smaller than a submission");
        let rest = [&sealed[..], &length.to_le_bytes()].concat().into();
        Self { body: input.body.as_bytes().clone(), rest }
    }

    /// The body, and the encrypted settings if there are any.
    pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        let (bytes, length) = bytes.split_last_chunk::<LENGTH_BYTES>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (body, sealed) = bytes.split_at_checked(bytes.len().checked_sub(length)?)?;
        Some((body, (!sealed.is_empty()).then_some(sealed)))
    }

    /// The body only.
    pub(crate) fn read_body(bytes: &Bytes) -> Option<Json> {
        let (body, _) = Self::split(bytes)?;
        Some(Json::from_stored(bytes.slice_ref(body)))
    }

    /// Decodes an input; `None` when it is damaged.
    pub(crate) fn read(bytes: &Bytes, seal: &Seal, seq: u64) -> Option<Payload> {
        let (body, sealed) = Self::split(bytes)?;
        let s3_config = match sealed {
            Some(sealed) => Some(open_s3(sealed, seal, seq)?),
            None => None,
        };
        Some(Payload { body: Json::from_stored(bytes.slice_ref(body)), s3_config })
    }
}

fn open_s3(sealed: &[u8], seal: &Seal, seq: u64) -> Option<Arc<S3Config>> {
    let text = seal.open_text(sealed, &s3_place(seq))?;
    serde_json::from_slice(&text).ok().map(Arc::new)
}

/// The purpose that the encryption binds a job's object-storage settings to.
fn s3_place(seq: u64) -> String {
    format!("input.s3 {seq}")
}

/// A payload, if it exists; `Err` is the reason why it is unusable, when it is damaged.
pub(crate) type Found<T> = Result<Option<T>, String>;

/// Whether `body` matches its checksum in the tables. Rows of version 6 have no checksum.
pub(crate) fn is_whole(body: &[u8], sum: Option<u32>) -> bool {
    sum.is_none_or(|expected| expected == checksum::of(body))
}

/// Writes an input or output to its table, in the bytes of the journal.
pub(crate) fn put(db: &Connection, seq: u64, kind: Kind, bytes: &[u8]) -> rusqlite::Result<()> {
    match kind {
        Kind::Input => {
            let broken = || invalid(1, Type::Blob, "an input in the journal has no end");
            let (body, s3) = InputBytes::split(bytes).ok_or_else(broken)?;
            let sql = "INSERT OR REPLACE INTO input (seq, body, s3, sum) VALUES (?1, ?2, ?3, ?4)";
            db.prepare_cached(sql)?.execute(params![integer(seq), body, s3, checksum::of(body)])?
        }
        Kind::Output => db
            .prepare_cached("INSERT OR REPLACE INTO output (seq, body, sum) VALUES (?1, ?2, ?3)")?
            .execute(params![integer(seq), bytes, checksum::of(bytes)])?,
    };
    Ok(())
}

/// Records the location of an input or output that stays in the journal.
pub(crate) fn keep(
    db: &Connection,
    seq: u64,
    kind: Kind,
    location: JournalLocation,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO kept (seq, kind, segment, at, len) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        integer(seq),
        kind.code(),
        location.segment.0,
        location.at,
        location.len
    ])?;
    Ok(())
}

/// Removes the recorded location.
pub(crate) fn unkeep(db: &Connection, seq: u64, kind: Kind) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM kept WHERE seq = ?1 AND kind = ?2")?
        .execute(params![integer(seq), kind.code()])?;
    Ok(())
}

/// Passes the job's number and the location of each payload that stays in the journal to `take`.
pub(crate) fn load_kept(
    db: &Connection,
    mut take: impl FnMut(u64, Kind, JournalLocation),
) -> rusqlite::Result<()> {
    let mut statement = db.prepare("SELECT seq, kind, segment, at, len FROM kept")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let seq = row.get::<_, i64>(0)?.unsigned_abs();
        let kind = Kind::from_code(row.get(1)?);
        let kind = kind.ok_or_else(|| invalid(1, Type::Integer, "unknown kind of payload"))?;
        let location =
            JournalLocation { segment: SegmentId(row.get(2)?), at: row.get(3)?, len: row.get(4)? };
        take(seq, kind, location);
    }
    Ok(())
}

/// Reads and checks a payload from its table.
pub(crate) fn get(
    db: &Connection,
    seal: &Seal,
    seq: u64,
    kind: Kind,
) -> rusqlite::Result<Found<Payload>> {
    let sql = match kind {
        Kind::Input => "SELECT body, s3, sum FROM input WHERE seq = ?1",
        Kind::Output => "SELECT body, NULL, sum FROM output WHERE seq = ?1",
    };
    let found = db
        .prepare_cached(sql)?
        .query_row(params![integer(seq)], |row| {
            let damaged = |what: &str| format!("the stored {what} of row {seq} is damaged");
            let body: Vec<u8> = row.get(0)?;
            if !is_whole(&body, row.get(2)?) {
                return Ok(Err(damaged(kind.name())));
            }
            let sealed = row.get_ref(1)?.as_blob_or_null()?;
            let s3_config = sealed.map(|sealed| open_s3(sealed, seal, seq));
            if s3_config.as_ref().is_some_and(Option::is_none) {
                return Ok(Err(damaged("s3Config")));
            }
            let s3_config = s3_config.flatten();
            Ok(Ok(Payload { body: Json::from_stored(body), s3_config }))
        })
        .optional()?;
    Ok(found.transpose())
}

/// Deletes the input that the tables may have.
pub(crate) fn delete_input(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM input WHERE seq = ?1")?.execute([integer(seq)])?;
    unkeep(db, seq, Kind::Input)
}

/// Removes an output, if there is one.
pub(crate) fn delete_output(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM output WHERE seq = ?1")?.execute([integer(seq)])?;
    unkeep(db, seq, Kind::Output)
}

/// Deletes the payloads of the job that the tables may have.
pub(crate) fn delete(db: &Connection, seq: u64, has_output: bool) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM input WHERE seq = ?1")?.execute(params![integer(seq)])?;
    db.prepare_cached("DELETE FROM kept WHERE seq = ?1")?.execute(params![integer(seq)])?;
    if has_output {
        db.prepare_cached("DELETE FROM output WHERE seq = ?1")?.execute(params![integer(seq)])?;
    }
    Ok(())
}
