//! Fills the index from the database when a store is opened.

use std::collections::HashMap;

use gristmill_core::billing::usage::{
    Hour, NEWEST_HOURS, UsageFilter, UsageKey, UsageQuery, UsageRow, UsageSum,
};
use gristmill_core::catalog::CatalogEntry;
use gristmill_core::id::{EndpointId, JobId, OwnerId, TemplateId};
use gristmill_core::job::note::{ScheduleNote, ScheduleNumber};
use gristmill_core::job::record::JobCounts;
use gristmill_core::time::Timestamp;
use gristmill_core::webhook::delivery::{
    Delivery, DeliveryId, DeliveryOutcome, DeliveryState, MadeAttempt,
};
use gristmill_postgres::{Connection, DatabaseError, Row, SqlQuery, Value};
use minicbor::Decode;

use crate::error::OpenError;
use crate::format::EndpointKey;
use crate::format::image::{DeliveryImage, FixedImage, IdempotencyImage, NewJobImage, RowImage};
use crate::format::trace;
use crate::seal::Seal;
use crate::state::index::Index;
use crate::state::owners::Owners;
use crate::tables::catalog;
use crate::tables::sql::integer;

/// Rows of usage that one query reads, if no hour alone has more: an hour has a row for each
/// endpoint and owner that had jobs, and each start of a host in it.
const USAGE_PART_ROWS: i64 = 100_000;

/// Why the index cannot be filled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotLoaded {
    #[error(transparent)]
    Failed(#[from] DatabaseError),
    /// A row that cannot be read.
    #[error("{0}")]
    Damaged(String),
}

impl From<NotLoaded> for OpenError {
    fn from(error: NotLoaded) -> Self {
        match error {
            NotLoaded::Failed(error) => error.into(),
            NotLoaded::Damaged(details) => Self::Database(details),
        }
    }
}

/// Reads everything except the payloads.
pub(crate) fn load(
    connection: &mut Connection,
    seal: &Seal,
    owners: Owners,
    now: Timestamp,
) -> Result<Index, NotLoaded> {
    let mut index = Index::new(owners);
    load_endpoints(connection, &mut index)?;
    load_jobs(connection, &mut index)?;
    // No job takes a number that has chunks in the tables, such as those of a dump that was
    // restored in part.
    let sql = "SELECT coalesce(max(seq), 0) FROM chunk";
    let rows = connection.query(&SqlQuery::new(sql, Vec::new()))?;
    index.use_up_seq(rows.first().map_or(0, |row| number(row, 0)));
    let mut endpoint_owners = HashMap::new();
    for body in catalog_bodies(connection, seal)? {
        let entry = catalog::parse(&body).map_err(|error| {
            NotLoaded::Damaged(format!("a catalog entry cannot be read: {error}"))
        })?;
        if let CatalogEntry::Endpoint(endpoint) = entry {
            endpoint_owners.insert(endpoint.id, endpoint.owner);
        }
    }
    load_idempotency_records(connection, &mut index, &endpoint_owners)?;
    load_deliveries(connection, &mut index, &endpoint_owners)?;
    let sql = "SELECT number, note FROM schedule";
    for row in connection.query(&SqlQuery::new(sql, Vec::new()))? {
        let schedule = ScheduleNumber(number(&row, 0));
        index.restore_note(ScheduleNote { schedule, text: row.get::<_, &str>(1).to_owned() });
    }
    let sql = "SELECT coalesce(max(run), 0) FROM usage";
    let rows = connection.query(&SqlQuery::new(sql, Vec::new()))?;
    let last_run = rows.first().map_or(0, |row| row.get::<_, i64>(0));
    let hours = Hour::of(now);
    let query = UsageQuery {
        hours: Hour(hours.0.saturating_sub(NEWEST_HOURS))..Hour(hours.0.saturating_add(1)),
        filter: UsageFilter::default(),
        after: None,
        rows_max: usize::MAX,
    };
    let newest = usage(connection, query, Hour::default())?;
    index.restore_usage(u32::try_from(last_run).unwrap_or(u32::MAX), newest);
    Ok(index)
}

/// [`Index::overdue`]. Reads the row of each job, and changes nothing.
pub(super) fn overdue(
    connection: &mut Connection,
    seen_at: Timestamp,
    now: Timestamp,
) -> Result<u64, NotLoaded> {
    let mut index = Index::new(Owners::default());
    restore_endpoints(connection, &mut index)?;
    load_jobs(connection, &mut index)?;
    Ok(index.overdue(seen_at, now))
}

fn restore_endpoints(connection: &mut Connection, index: &mut Index) -> Result<(), NotLoaded> {
    let sql = "SELECT seq, name, completed, failed, retried FROM endpoint ORDER BY seq";
    for row in connection.query(&SqlQuery::new(sql, Vec::new()))? {
        let name = EndpointId::new(row.get::<_, &str>(1))
            .map_err(|error| damaged("endpoint", &row, error))?;
        let counts = JobCounts {
            completed: number(&row, 2),
            failed: number(&row, 3),
            retried: number(&row, 4),
            ..JobCounts::default()
        };
        index.restore_endpoint(key(&row, 0), name, counts);
    }
    Ok(())
}

fn load_endpoints(connection: &mut Connection, index: &mut Index) -> Result<(), NotLoaded> {
    restore_endpoints(connection, index)?;
    let mut stale = Vec::new();
    let sql = "SELECT endpoint FROM deleting ORDER BY endpoint";
    for row in connection.query(&SqlQuery::new(sql, Vec::new()))? {
        if !index.continue_deletion(key(&row, 0)) {
            stale.push(row.get::<_, i64>(0));
        }
    }
    if !stale.is_empty() {
        let unmark = "DELETE FROM deleting WHERE endpoint = ANY ($1::bigint[])";
        connection.transaction(&[SqlQuery::new(unmark, vec![Box::new(stale)])])?;
    }
    Ok(())
}

fn load_jobs(connection: &mut Connection, index: &mut Index) -> Result<(), NotLoaded> {
    /// Rows in one answer: some MiB.
    const SLICE: i64 = 10_000;
    let sql = "SELECT seq, id, endpoint, fixed, state, input_bytes FROM job \
         WHERE seq > $1::bigint ORDER BY seq LIMIT $2::bigint";
    let mut after = i64::MIN;
    loop {
        let rows = connection.query(&SqlQuery::new(sql, vec![Box::new(after), Box::new(SLICE)]))?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.get(0);
        for row in &rows {
            let missing = || damaged("job", row, "a column is missing");
            let id: JobId = row
                .get::<_, Option<&str>>(1)
                .ok_or_else(missing)?
                .parse()
                .map_err(|error| damaged("job", row, error))?;
            let endpoint = row.get::<_, Option<i64>>(2).and_then(|key| u32::try_from(key).ok());
            let fixed: FixedImage<'_> =
                decoded("job", row, row.get::<_, Option<&[u8]>>(3).ok_or_else(missing)?)?;
            let state: RowImage<'_> = decoded("job", row, row.get(4))?;
            let image = NewJobImage {
                seq: number(row, 0),
                id: id.to_bytes(),
                endpoint: endpoint.ok_or_else(missing)?,
                fixed,
                row: state,
                input_bytes: u32::try_from(row.get::<_, Option<i64>>(5).unwrap_or(0))
                    .unwrap_or(u32::MAX),
            };
            index.restore_row(&image).map_err(|reason| damaged("job", row, reason))?;
        }
    }
}

fn load_idempotency_records(
    connection: &mut Connection,
    index: &mut Index,
    owners: &HashMap<EndpointId, OwnerId>,
) -> Result<(), NotLoaded> {
    let sql = "SELECT seq, endpoint, job, record FROM idempotency ORDER BY seq";
    for row in connection.query(&SqlQuery::new(sql, Vec::new()))? {
        let job =
            JobId::from_bytes(row.get(2)).map_err(|error| damaged("idempotency", &row, error))?;
        let record: IdempotencyImage = decoded("idempotency", &row, row.get(3))?;
        index.restore_idempotency_record(number(&row, 0), key(&row, 1), job, record, owners);
    }
    index.end_of_idempotency_records();
    Ok(())
}

fn load_deliveries(
    connection: &mut Connection,
    index: &mut Index,
    owners: &HashMap<EndpointId, OwnerId>,
) -> Result<(), NotLoaded> {
    let sql = "SELECT id, endpoint, state FROM delivery ORDER BY id";
    for row in connection.query(&SqlQuery::new(sql, Vec::new()))? {
        let endpoint = key(&row, 1);
        let Some(name) = index.endpoint_name(endpoint) else {
            index.drop_delivery(endpoint, DeliveryId(number(&row, 0)));
            continue;
        };
        let image: DeliveryImage<'_> = decoded("delivery", &row, row.get(2))?;
        let delivery =
            delivery(&image, name).map_err(|reason| damaged("delivery", &row, reason))?;
        index.restore_delivery(endpoint, delivery, None, owners);
    }
    Ok(())
}

fn delivery(image: &DeliveryImage<'_>, endpoint: EndpointId) -> Result<Delivery, String> {
    let at = Timestamp::from_millis(image.at);
    let state = match image.state {
        0 => DeliveryState::Pending { due_at: at },
        1 => DeliveryState::Delivered { at },
        2 => DeliveryState::GivenUp { at },
        other => return Err(format!("unknown delivery state {other}")),
    };
    let made =
        |&(at, status): &(u64, Option<u16>)| MadeAttempt { at: Timestamp::from_millis(at), status };
    Ok(Delivery {
        id: DeliveryId(image.id),
        endpoint,
        job: JobId::from_bytes(&image.job).map_err(|error| error.to_string())?,
        job_status: image.job_status.parse().map_err(|error| format!("{error}"))?,
        job_retries: image.job_retries,
        url: image.url.to_owned(),
        body_bytes: image.body_bytes,
        created_at: Timestamp::from_millis(image.created_at),
        state,
        attempts: image.attempts,
        made: image.made.iter().map(made).collect(),
        last: DeliveryOutcome {
            status: image.last_status,
            error: image.last_error.map(str::to_owned),
        },
        trace: trace::context(image.trace, image.trace_state),
    })
}

/// The bodies of all rows of the catalog.
pub(super) fn catalog_bodies(
    connection: &mut Connection,
    seal: &Seal,
) -> Result<Vec<String>, NotLoaded> {
    let sql =
        "SELECT kind, name, body FROM catalog ORDER BY kind COLLATE \"C\", name COLLATE \"C\"";
    let rows = connection.query(&SqlQuery::new(sql, Vec::new()))?;
    rows.iter()
        .map(|row| {
            let (kind, name): (&str, &str) = (row.get(0), row.get(1));
            let text = seal.open_text(row.get(2), &catalog::purpose(kind, name));
            text.and_then(|text| String::from_utf8(text).ok()).ok_or_else(|| {
                NotLoaded::Damaged(format!(
                    "the {kind} `{name}` of the catalog cannot be decrypted"
                ))
            })
        })
        .collect()
}

/// Rows of usage, and the query for the further ones.
#[derive(Debug)]
pub(super) struct UsagePart {
    pub(super) rows: Vec<UsageRow>,
    pub(super) rest: Option<UsageQuery>,
}

/// All rows of a query of usage, as [`usage_part`] finds them.
fn usage(
    connection: &mut Connection,
    mut query: UsageQuery,
    first_kept: Hour,
) -> Result<Vec<UsageRow>, NotLoaded> {
    let mut found = Vec::new();
    loop {
        let UsagePart { rows, rest } = usage_part(connection, &query, first_kept)?;
        found.extend(rows);
        match rest {
            Some(rest) => query = rest,
            None => return Ok(found),
        }
    }
}

/// The rows of the first hours of a query of usage, beginning with the first hour that is still
/// shown. The table is sorted by hours, and has the rows of all owners: a query for few of them
/// would read all rows of a month at once.
pub(super) fn usage_part(
    connection: &mut Connection,
    query: &UsageQuery,
    first_kept: Hour,
) -> Result<UsagePart, NotLoaded> {
    let after = query.after.as_ref().map_or(first_kept, |after| after.hour);
    let start = query.hours.start.max(first_kept).max(after);
    let sql = "SELECT hour FROM usage WHERE hour >= $1::bigint AND hour < $2::bigint \
         ORDER BY hour LIMIT 1 OFFSET $3::bigint";
    let bounds = [i64::from(start.0), i64::from(query.hours.end.0), USAGE_PART_ROWS];
    let values = bounds.map(|bound| -> Value<'_> { Box::new(bound) });
    let end = connection.query_in_time(&SqlQuery::new(sql, values.into()))?;
    let end = match end.first() {
        Some(row) => hour(row)?.max(Hour(start.0.saturating_add(1))),
        None => query.hours.end,
    };
    let part = UsageQuery { hours: start..end, ..query.clone() };
    let rows = usage_of(connection, &part)?;
    let rows_max = query.rows_max.saturating_sub(rows.len());
    let is_last = rows_max == 0 || end >= query.hours.end;
    let rest = UsageQuery { hours: end..query.hours.end, rows_max, ..part };
    Ok(UsagePart { rows, rest: (!is_last).then_some(rest) })
}

/// The rows of these hours. An hour may have several runs, and its usage is the sum of theirs.
fn usage_of(connection: &mut Connection, query: &UsageQuery) -> Result<Vec<UsageRow>, NotLoaded> {
    let sql = "SELECT hour, endpoint, template, owner, sum(jobs)::bigint, sum(wall_ms)::bigint, \
         sum(cpu_us)::bigint, sum(fuel)::bigint, max(memory_bytes_peak), sum(memory_mib_ms)::bigint, \
         sum(bytes_in)::bigint, sum(bytes_out)::bigint, sum(chunks)::bigint \
         FROM usage WHERE hour >= $1::bigint AND hour < $2::bigint \
         AND (hour, endpoint COLLATE \"C\", template COLLATE \"C\", owner COLLATE \"C\") \
         > ($3::bigint, $4::text, $5::text, $6::text) \
         AND ($7::text IS NULL OR endpoint = $7) AND ($8::text IS NULL OR template = $8) \
         AND ($9::text IS NULL OR owner = $9) GROUP BY hour, endpoint, template, owner \
         ORDER BY hour, endpoint COLLATE \"C\", template COLLATE \"C\", owner COLLATE \"C\" LIMIT $10::bigint";
    let after = query.after.as_ref();
    let values: Vec<Value<'_>> = vec![
        Box::new(i64::from(query.hours.start.0)),
        Box::new(i64::from(query.hours.end.0)),
        Box::new(after.map_or(-1, |after| i64::from(after.hour.0))),
        Box::new(after.map_or("", |after| after.endpoint.as_str())),
        Box::new(after.map_or("", |after| after.template.as_str())),
        Box::new(after.map_or("", |after| after.owner.as_str())),
        Box::new(query.filter.endpoint.as_ref().map(EndpointId::as_str)),
        Box::new(query.filter.template.as_ref().map(TemplateId::as_str)),
        Box::new(query.filter.owner.as_ref().map(OwnerId::as_str)),
        Box::new(integer(query.rows_max as u64)),
    ];
    let rows = connection.query_in_time(&SqlQuery::new(sql, values))?;
    rows.iter().map(usage_row).collect()
}

fn usage_row(row: &Row) -> Result<UsageRow, NotLoaded> {
    Ok(UsageRow {
        key: UsageKey {
            hour: hour(row)?,
            endpoint: EndpointId::new(row.get::<_, &str>(1))
                .map_err(|error| damaged("usage", row, error))?,
            template: TemplateId::new(row.get::<_, &str>(2))
                .map_err(|error| damaged("usage", row, error))?,
            owner: OwnerId::new(row.get::<_, &str>(3))
                .map_err(|error| damaged("usage", row, error))?,
        },
        sum: UsageSum {
            jobs: number(row, 4),
            wall_ms: number(row, 5),
            cpu_us: number(row, 6),
            fuel: number(row, 7),
            memory_bytes_peak: number(row, 8),
            memory_mib_ms: number(row, 9),
            bytes_in: number(row, 10),
            bytes_out: number(row, 11),
            chunks: number(row, 12),
        },
    })
}

/// The oldest hour with usage.
pub(super) fn oldest_usage(connection: &mut Connection) -> Result<Option<Hour>, NotLoaded> {
    let sql = "SELECT hour FROM usage ORDER BY hour LIMIT 1";
    let rows = connection.query(&SqlQuery::new(sql, Vec::new()))?;
    rows.first().map(hour).transpose()
}

/// The first column of a row of usage.
fn hour(row: &Row) -> Result<Hour, NotLoaded> {
    let hour = u32::try_from(row.get::<_, i64>(0));
    hour.map(Hour).map_err(|error| damaged("usage", row, error))
}

fn number(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column).unsigned_abs()
}

fn key(row: &Row, column: usize) -> EndpointKey {
    EndpointKey(u32::try_from(row.get::<_, i64>(column)).unwrap_or(u32::MAX))
}

/// The finding for a row, which is named by its first column.
fn damaged(table: &str, row: &Row, reason: impl std::fmt::Display) -> NotLoaded {
    let seq: i64 = row.get(0);
    NotLoaded::Damaged(format!("row {seq} of the table `{table}` cannot be read: {reason}"))
}

fn decoded<'a, T: Decode<'a, ()>>(
    table: &str,
    row: &'a Row,
    bytes: &'a [u8],
) -> Result<T, NotLoaded> {
    minicbor::decode(bytes).map_err(|error| damaged(table, row, error))
}
