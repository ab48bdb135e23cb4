//! Webhooks in the database. The bytes to send are deleted when the delivery ends, and the row when
//! it is too old for its endpoint's log.

use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::payload::Json;
use gristmill_core::job::state::UnknownStatus;
use gristmill_core::time::Timestamp;
use gristmill_core::webhook::delivery::{
    Delivery, DeliveryId, DeliveryOutcome, DeliveryState, MadeAttempt,
};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::format::EndpointKey;
use crate::format::image::DeliveryImage;
use crate::format::image::PENDING;
use crate::format::payload::Found;
use crate::format::trace;
use crate::journal::checksum;
use crate::tables::sql::is_whole;
use crate::tables::sql::{each_row, integer, invalid};

/// Writes the present state of a delivery, and its body if it is new. Deletes the body of a
/// delivery that has ended.
pub(crate) fn put(
    db: &Connection,
    delivery: &DeliveryImage<'_>,
    body: Option<&[u8]>,
) -> rusqlite::Result<()> {
    let seq = integer(delivery.id);
    let made = (!delivery.made.is_empty()).then(|| encode_made(&delivery.made));
    db.prepare_cached(
        "INSERT OR REPLACE INTO delivery (seq, endpoint, job, job_status, job_retries, url, \
         body_bytes, created_at, state, at, attempts, last_status, last_error, made, trace) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?
    .execute(params![
        seq,
        integer(delivery.endpoint),
        &delivery.job[..],
        delivery.job_status,
        delivery.job_retries,
        delivery.url,
        integer(delivery.body_bytes),
        integer(delivery.created_at),
        delivery.state,
        integer(delivery.at),
        delivery.attempts,
        delivery.last_status,
        delivery.last_error,
        made,
        trace::column(delivery.trace, delivery.trace_state),
    ])?;
    if let Some(body) = body {
        let sql = "INSERT OR REPLACE INTO delivery_body (seq, body, sum) VALUES (?1, ?2, ?3)";
        db.prepare_cached(sql)?.execute(params![seq, body, checksum::of(body)])?;
    }
    if delivery.state != PENDING {
        db.prepare_cached("DELETE FROM delivery_body WHERE seq = ?1")?.execute([seq])?;
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
pub(crate) fn body(db: &Connection, id: DeliveryId) -> rusqlite::Result<Found<Json>> {
    let found = db
        .prepare_cached("SELECT body, sum FROM delivery_body WHERE seq = ?1")?
        .query_row([integer(id.0)], |row| {
            let body: Vec<u8> = row.get(0)?;
            let is_whole = is_whole(&body, row.get(1)?);
            let damaged = || format!("the stored body of webhook {} is damaged", id.0);
            Ok(if is_whole { Ok(Json::from_stored(body)) } else { Err(damaged()) })
        })
        .optional()?;
    Ok(found.transpose())
}

fn encode_made(made: &[(u64, Option<u16>)]) -> Vec<u8> {
    minicbor::to_vec(made).expect("a vector takes all bytes")
}

fn made(bytes: Option<&[u8]>) -> rusqlite::Result<Vec<MadeAttempt>> {
    let Some(bytes) = bytes else { return Ok(Vec::new()) };
    let made: Result<Vec<(u64, Option<u16>)>, _> = minicbor::decode(bytes);
    let made = made.map_err(|error| invalid(13, Type::Blob, error.to_string()))?;
    let attempt = |(at, status)| MadeAttempt { at: Timestamp::from_millis(at), status };
    Ok(made.into_iter().map(attempt).collect())
}

/// The endpoint of a row, and its delivery; only the id if the endpoint is missing.
type FoundRow = (EndpointKey, Result<Delivery, DeliveryId>);

/// All rows, with the columns in the order in which [`read`] takes them.
const SELECT: &str = "SELECT seq, endpoint, job, job_status, job_retries, url, body_bytes, created_at, state, \
     at, attempts, last_status, last_error, made, trace FROM delivery ORDER BY seq";

/// Passes every delivery to `take`, and only its id if its endpoint is missing. `name` returns the
/// name of an endpoint.
pub(crate) fn load(
    db: &Connection,
    name: impl Fn(EndpointKey) -> Option<EndpointId>,
    mut take: impl FnMut(EndpointKey, Result<Delivery, DeliveryId>),
) -> rusqlite::Result<()> {
    each(db, name, |_, found| {
        let (endpoint, delivery) = found?;
        take(endpoint, delivery);
        Ok(())
    })
}

/// Passes the number of every row to `take`, with the content of the row or its error. `name`
/// returns the name of an endpoint.
pub(crate) fn each(
    db: &Connection,
    name: impl Fn(EndpointKey) -> Option<EndpointId>,
    take: impl FnMut(i64, rusqlite::Result<FoundRow>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    each_row(db, SELECT, |row| read(row, &name), take)
}

fn read(
    row: &Row<'_>,
    name: impl Fn(EndpointKey) -> Option<EndpointId>,
) -> rusqlite::Result<FoundRow> {
    let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let endpoint = EndpointKey(row.get(1)?);
    let id = DeliveryId(number(0)?);
    let Some(name) = name(endpoint) else { return Ok((endpoint, Err(id))) };
    let status = row.get_ref(3)?.as_str()?.parse();
    let at = Timestamp::from_millis(number(9)?);
    let state = match number(8)? {
        0 => DeliveryState::Pending { due_at: at },
        1 => DeliveryState::Delivered { at },
        2 => DeliveryState::GivenUp { at },
        _ => return Err(invalid(8, Type::Integer, "unknown delivery state")),
    };
    let job = JobId::from_bytes(row.get_ref(2)?.as_blob()?);
    let (context, trace_state) = trace::parts(row.get_ref(14)?.as_blob_or_null()?);
    let delivery = Delivery {
        id,
        endpoint: name,
        job: job.map_err(|error| invalid(2, Type::Blob, error))?,
        job_status: status.map_err(|error: UnknownStatus| invalid(3, Type::Text, error))?,
        job_retries: row.get(4)?,
        url: row.get(5)?,
        body_bytes: number(6)?,
        created_at: Timestamp::from_millis(number(7)?),
        state,
        attempts: row.get(10)?,
        made: made(row.get_ref(13)?.as_blob_or_null()?)?,
        last: DeliveryOutcome { status: row.get(11)?, error: row.get(12)? },
        trace: trace::context(context, trace_state),
    };
    Ok((endpoint, Ok(delivery)))
}
