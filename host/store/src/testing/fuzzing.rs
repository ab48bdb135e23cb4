//! Entry points for the fuzz targets: the decoders of bytes on disk, which callers of the store
//! cannot reach directly.

use std::path::Path;
use std::sync::Arc;

use gristmill_core::time::Timestamp;
use rusqlite::{Connection, params};

use crate::format::decode;
use crate::format::image::{BatchImage, JobLocations, StateImage};
use crate::format::pages;
use crate::format::payload::InputBytes;
use crate::journal::checksum::PayloadPart;
use crate::journal::frame::{self, Extent, HEAD_BYTES};
use crate::journal::segment::{HEADER_BYTES, Header};
use crate::medium::{PayloadLocation, SegmentId};
use crate::offline::job_of_row;
use crate::state::job::{Attempt, Job, JobRow};
use crate::state::owners::Owners;
use crate::tables::jobs::{self, Counted};
use crate::tables::schema;
use crate::tables::sql::integer;

/// Decodes a frame and encodes it again.
///
/// # Errors
/// The decoder's error.
pub fn rewrite_frame(encoded_batch: &[u8], payload_bytes: u32) -> Result<Vec<u8>, String> {
    Ok(decode(encoded_batch, payload_bytes)?.0.encode())
}

/// The positions of a frame's payloads, in the order of the frame: offset and length.
///
/// # Errors
/// The decoder's error.
pub fn payloads_of_frame(
    encoded_batch: &[u8],
    payload_bytes: u32,
) -> Result<Vec<(u32, u32)>, String> {
    let (_, locations) = decode(encoded_batch, payload_bytes)?;
    let each = |locations: JobLocations| {
        let JobLocations { input, output, pages, body } = locations;
        let pages = pages.into_iter().map(|(_, page)| Some(page));
        [input, output].into_iter().chain(pages).chain([body]).flatten().collect::<Vec<_>>()
    };
    Ok(locations.into_iter().flat_map(each).map(|location| (location.at, location.len)).collect())
}

/// The rows of a frame's new jobs: as the frame has them, and as the table returns them.
///
/// # Errors
/// The decoder's error, or the database's.
pub fn rows_of_frame(encoded_batch: &[u8], payload_bytes: u32) -> Result<[Vec<String>; 2], String> {
    let (image, _) = decode(encoded_batch, payload_bytes)?;
    let (mut said, mut read) = (Vec::new(), Vec::new());
    let db = tables().map_err(text)?;
    for job in &image.jobs {
        let StateImage::New { fixed, row, .. } = &job.state else { continue };
        let (Ok(decoded), Some(_)) = (JobRow::of(row), job.job_id()) else { continue };
        jobs::insert(&db, job, fixed, row, Counted::of(job)).map_err(text)?;
        said.push(format!("{:?}", as_stored(&decoded)));
        read.push(format!("{:?}", first_job(&db).map_err(text)?.row));
        jobs::delete(&db, job.seq).map_err(text)?;
    }
    Ok([said, read])
}

/// The columns of a job's row, by type, in the order of the table.
#[derive(Debug)]
pub struct Columns<'a> {
    /// All numeric columns that are never null, except `seq`.
    pub numbers: [i64; 13],
    /// `started_at` and `finished_at`.
    pub times: [Option<i64>; 2],
    /// `id`.
    pub id: &'a [u8],
    /// `webhook`, `worker` and `error`.
    pub texts: [Option<&'a str>; 3],
}

/// Reads a row that another program has written.
///
/// # Errors
/// The fault of the row.
pub fn read_row(columns: &Columns<'_>) -> Result<String, String> {
    let db = tables().map_err(text)?;
    let Columns { numbers, times: [started_at, finished_at], id, texts } = columns;
    let [webhook, worker, error] = texts;
    db.execute(
        "INSERT INTO job (seq, id, owner, started_at, finished_at, webhook, worker, error, \
         endpoint, low_priority, execution_timeout_ms, ttl_ms, retention_ms, created_at, state, \
         claim, crashes, retries, place, ttl_at, chunk_count, input_bytes, result_bytes) VALUES (1, ?1, 'o', ?2, ?3, ?4, ?5, \
         ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?18, ?19)",
        params![
            id,
            started_at,
            finished_at,
            webhook,
            worker,
            error,
            numbers[0],
            numbers[1],
            numbers[2],
            numbers[3],
            numbers[4],
            numbers[5],
            numbers[6],
            numbers[7],
            numbers[8],
            numbers[9],
            numbers[10],
            numbers[11],
            numbers[12],
        ],
    )
    .map_err(text)?;
    first_job(&db).map(|job| format!("{job:?}")).map_err(text)
}

/// A page of chunks, decoded and encoded again; `None` when it is damaged.
pub fn rewrite_page(bytes: &[u8]) -> Option<Vec<u8>> {
    let page = pages::Page::decode(0, bytes.to_vec().into())?;
    Some(pages::encode(&page.chunks).to_vec())
}

/// The body of an input, and the encrypted settings beside it; `None` when it is damaged.
pub fn split_input(bytes: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    InputBytes::split(bytes)
}

/// Recomputes the checksums of a segment's header and frames.
pub fn reseal_segment(bytes: &mut [u8]) {
    let Some((header, _)) = bytes.split_first_chunk_mut() else { return };
    let salt = Header::reseal(header);
    let (mut at, mut number) = (HEADER_BYTES, 0);
    while let Some(end) = reseal_frame(bytes, salt, number, at) {
        (at, number) = (end, number + 1);
    }
}

/// Returns the position of the next frame.
fn reseal_frame(bytes: &mut [u8], salt: u64, number: u32, at: u32) -> Option<u32> {
    let from = at as usize;
    let lengths = bytes.get(from + 8..from + 16)?.as_chunks::<4>().0;
    let [encoded_batch, payloads] = *<&[_; 2]>::try_from(lengths).ok()?;
    let [encoded_batch, payloads] = [encoded_batch, payloads].map(u32::from_le_bytes);
    let end = Extent::of(at, encoded_batch, payloads)?.end;
    let frame = bytes.get_mut(from..end as usize).filter(|_| encoded_batch > 0)?;
    let (head, rest) = frame.split_at_mut(HEAD_BYTES as usize);
    let (encoded_batch, rest) = rest.split_at(encoded_batch as usize);
    let payloads = rest.get(..payloads as usize)?;
    let payloads = [PayloadPart::Bytes(payloads.to_vec().into())];
    head.copy_from_slice(&frame::head(salt, number, encoded_batch, &payloads));
    Some(end)
}

/// The row as the table stores it: numbers up to the table's greatest, and of an attempt without a
/// time only its past.
fn as_stored(row: &JobRow) -> JobRow {
    let number = |number: u64| integer(number).unsigned_abs();
    let time = |time: Timestamp| Timestamp::from_millis(number(time.as_millis()));
    let attempt = row.attempt.as_deref().map(|attempt| {
        let Attempt { queued_at, started_at, finished_at, .. } = attempt;
        let result_bytes = number(attempt.result_bytes);
        if queued_at.or(*started_at).or(*finished_at).is_none() {
            let past = attempt.past.clone();
            return Arc::new(Attempt { result_bytes, past, ..Attempt::default() });
        }
        Arc::new(Attempt {
            queued_at: queued_at.map(time),
            started_at: started_at.map(time),
            finished_at: finished_at.map(time),
            chunk_count: number(attempt.chunk_count),
            result_bytes,
            ..attempt.clone()
        })
    });
    let is_stored = |attempt: &Arc<Attempt>| {
        let Attempt { queued_at, started_at, finished_at, past, .. } = &**attempt;
        queued_at.or(*started_at).or(*finished_at).is_some() || past.bytes().is_some()
    };
    JobRow {
        queue_position: number(row.queue_position),
        ttl_at: time(row.ttl_at),
        attempt: attempt.filter(is_stored),
        ..row.clone()
    }
}

/// Removes the record of the newest segment from a closed store.
///
/// # Panics
/// When it cannot be written.
pub fn forget_newest_segment(dir: &Path) {
    let db = Connection::open(dir.join("store.db")).expect("a store");
    db.execute("UPDATE meta SET journal_last = 0, journal_end = NULL", ()).expect("a store");
}

fn decode(
    encoded_batch: &[u8],
    payload_bytes: u32,
) -> Result<(BatchImage<'_>, Vec<JobLocations>), String> {
    let payloads = PayloadLocation { segment: SegmentId(1), at: HEADER_BYTES, len: payload_bytes };
    decode::batch(encoded_batch, payloads).map_err(|error| error.to_string())
}

fn tables() -> rusqlite::Result<Connection> {
    let mut db = Connection::open_in_memory()?;
    schema::create(&mut db)?;
    Ok(db)
}

fn first_job(db: &Connection) -> rusqlite::Result<Job> {
    db.query_row(jobs::SELECT_JOBS, (), |row| job_of_row(row, &mut Owners::default()))
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn text(error: rusqlite::Error) -> String {
    error.to_string()
}
