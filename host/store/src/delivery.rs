//! Webhooks on disk. A row of `delivery` and the bytes to send are written in the transaction that
//! ends the job, so that neither can be there without the other; the bytes go when the delivery
//! ends, the row when it falls out of its endpoint's log.

use gristmill_core::delivery::{AttemptReport, Delivery, DeliveryId, DeliveryState};
use gristmill_core::document::webhook_body;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::{JobStatus, UnknownStatus};
use gristmill_core::limits::{STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX};
use gristmill_core::payload::Json;
use gristmill_core::record::JobRecord;
use gristmill_core::stream::OutputList;
use gristmill_core::time::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use crate::chunks::{self, Query};
use crate::entry::EndpointKey;
use crate::payloads::{self, Kind};
use crate::row::{integer, invalid};
use crate::seal::Seal;

/// A delivery to add when the job's end is written.
#[derive(Debug)]
pub(crate) struct NewDelivery {
    pub(crate) id: DeliveryId,
    /// The job as it ended.
    pub(crate) record: JobRecord,
    /// Whether it is given up at once: too many are on their way.
    pub(crate) is_refused: bool,
}

/// Adds a delivery for a job whose rows are written. `None` when they are not there after all.
pub(crate) fn add(
    db: &Connection,
    seal: &Seal,
    seq: u64,
    endpoint: EndpointKey,
    new: &NewDelivery,
) -> rusqlite::Result<Option<Delivery>> {
    let url: Option<String> = db
        .prepare_cached("SELECT webhook FROM job WHERE seq = ?1")?
        .query_row(params![integer(seq)], |row| row.get(0))?;
    let input = payloads::get(db, seal, seq, Kind::Input)?;
    let (Some(url), Some(input)) = (url, input) else { return Ok(None) };
    let record = &new.record;
    let output = match record.status {
        JobStatus::Completed => output(db, seal, seq, record.chunk_count)?,
        JobStatus::InQueue
        | JobStatus::InProgress
        | JobStatus::Failed
        | JobStatus::Cancelled
        | JobStatus::TimedOut => None,
    };
    let body = webhook_body(record, output.as_ref(), &input.body, &url);
    let delivery = Delivery::pending(new.id, record, url, body.len() as u64);
    if new.is_refused {
        let refused = delivery.refused();
        insert(db, endpoint, &refused)?;
        return Ok(Some(refused));
    }
    insert(db, endpoint, &delivery)?;
    db.prepare_cached("INSERT INTO delivery_body (seq, body) VALUES (?1, ?2)")?
        .execute(params![integer(new.id.0), body])?;
    Ok(Some(delivery))
}

/// The output as clients read it: a handler that only streamed has the list of its chunks.
fn output(
    db: &Connection,
    seal: &Seal,
    seq: u64,
    chunk_count: u64,
) -> rusqlite::Result<Option<Json>> {
    let returned = payloads::get(db, seal, seq, Kind::Output)?.map(|output| output.body);
    if chunk_count == 0 || !returned.as_ref().is_some_and(Json::is_null) {
        return Ok(returned);
    }
    let mut list = OutputList::default();
    while let Some(from) = list.wants(chunk_count) {
        let query = Query {
            from,
            end: chunk_count,
            bytes_max: STREAM_PAGE_BYTES_MAX,
            count_max: STREAM_PAGE_CHUNKS_MAX,
        };
        list.add(chunks::get(db, seq, &query)?);
    }
    Ok(list.finish())
}

fn insert(db: &Connection, endpoint: EndpointKey, delivery: &Delivery) -> rusqlite::Result<()> {
    let (state, at) = state_columns(delivery.state);
    db.prepare_cached(
        "INSERT INTO delivery (seq, endpoint, job, job_status, job_retries, url, body_bytes, \
         created_at, state, at, attempts, last_error) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11)",
    )?
    .execute(params![
        integer(delivery.id.0),
        integer(endpoint.0),
        &delivery.job.to_bytes()[..],
        delivery.job_status.as_str(),
        delivery.job_retries,
        delivery.url,
        integer(delivery.body_bytes),
        integer(delivery.created_at.as_millis()),
        state,
        integer(at.as_millis()),
        delivery.last.error,
    ])?;
    Ok(())
}

/// Writes what an attempt has changed.
pub(crate) fn update(db: &Connection, delivery: &Delivery) -> rusqlite::Result<()> {
    let seq = integer(delivery.id.0);
    let (state, at) = state_columns(delivery.state);
    db.prepare_cached(
        "UPDATE delivery SET state = ?2, at = ?3, attempts = ?4, last_status = ?5, \
         last_error = ?6 WHERE seq = ?1",
    )?
    .execute(params![
        seq,
        state,
        integer(at.as_millis()),
        delivery.attempts,
        delivery.last.status,
        delivery.last.error,
    ])?;
    match delivery.state {
        DeliveryState::Pending { .. } => {}
        DeliveryState::Delivered { .. } | DeliveryState::GivenUp { .. } => {
            db.prepare_cached("DELETE FROM delivery_body WHERE seq = ?1")?.execute([seq])?;
        }
    }
    Ok(())
}

/// Removes a delivery.
pub(crate) fn delete(db: &Connection, id: DeliveryId) -> rusqlite::Result<()> {
    let seq = [integer(id.0)];
    db.prepare_cached("DELETE FROM delivery_body WHERE seq = ?1")?.execute(seq)?;
    db.prepare_cached("DELETE FROM delivery WHERE seq = ?1")?.execute(seq)?;
    Ok(())
}

/// The bytes to send.
pub(crate) fn body(db: &Connection, id: DeliveryId) -> rusqlite::Result<Option<Json>> {
    db.prepare_cached("SELECT body FROM delivery_body WHERE seq = ?1")?
        .query_row([integer(id.0)], |row| Ok(Json::from_stored(row.get::<_, Vec<u8>>(0)?)))
        .optional()
}

/// Hands every delivery to `take`. `name` says how an endpoint is called; deliveries of one that
/// is not there are left out.
pub(crate) fn load(
    db: &Connection,
    name: impl Fn(EndpointKey) -> Option<EndpointId>,
    mut take: impl FnMut(EndpointKey, Delivery),
) -> rusqlite::Result<()> {
    let mut statement = db.prepare(
        "SELECT seq, endpoint, job, job_status, job_retries, url, body_bytes, created_at, state, \
         at, attempts, last_status, last_error FROM delivery ORDER BY seq",
    )?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        let endpoint = EndpointKey(number(1)?);
        let Some(name) = name(endpoint) else { continue };
        let status = row.get_ref(3)?.as_str()?.parse();
        let at = Timestamp::from_millis(number(9)?);
        let state = match number(8)? {
            0 => DeliveryState::Pending { due_at: at },
            1 => DeliveryState::Delivered { at },
            2 => DeliveryState::GivenUp { at },
            _ => return Err(invalid(8, Type::Integer, "unknown delivery state")),
        };
        let job = JobId::from_bytes(row.get_ref(2)?.as_blob()?);
        let delivery = Delivery {
            id: DeliveryId(number(0)?),
            endpoint: name,
            job: job.map_err(|error| invalid(2, Type::Blob, error))?,
            job_status: status.map_err(|error: UnknownStatus| invalid(3, Type::Text, error))?,
            job_retries: row.get(4)?,
            url: row.get(5)?,
            body_bytes: number(6)?,
            created_at: Timestamp::from_millis(number(7)?),
            state,
            attempts: row.get(10)?,
            last: AttemptReport { status: row.get(11)?, error: row.get(12)? },
        };
        take(endpoint, delivery);
    }
    Ok(())
}

/// Codes are on disk and stay as they are.
fn state_columns(state: DeliveryState) -> (u8, Timestamp) {
    match state {
        DeliveryState::Pending { due_at } => (0, due_at),
        DeliveryState::Delivered { at } => (1, at),
        DeliveryState::GivenUp { at } => (2, at),
    }
}
