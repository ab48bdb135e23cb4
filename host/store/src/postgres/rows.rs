//! A batch as statements: one for each kind of row, with an array for each column.

use std::collections::BTreeMap;

use gristmill_postgres::{SqlQuery, Value};
use minicbor::Encode;

use crate::commit::encode::{fixed_image, idempotency_image};
use crate::format::image::{DeliveryImage, PENDING};
use crate::format::pages;
use crate::format::payload::InputBytes;
use crate::format::status_code;
use crate::seal::Seal;
use crate::state::batch::{Batch, JobWrite, RowWrite};
use crate::state::meters::UsageWrite;
use crate::tables::sql::integer;

/// The columns of new jobs.
#[derive(Default)]
struct NewJobs<'a> {
    seqs: Vec<i64>,
    ids: Vec<String>,
    endpoints: Vec<i64>,
    created_at: Vec<i64>,
    fixed: Vec<Vec<u8>>,
    input_bytes: Vec<i64>,
    statuses: Vec<i16>,
    states: Vec<Vec<u8>>,
    inputs: Vec<Option<&'a [u8]>>,
    s3: Vec<Option<Vec<u8>>>,
    outputs: Vec<Option<&'a [u8]>>,
}

/// The columns of changed jobs.
#[derive(Default)]
struct ChangedJobs<'a> {
    seqs: Vec<i64>,
    statuses: Vec<i16>,
    states: Vec<Vec<u8>>,
    keep_input: Vec<bool>,
    keep_output: Vec<bool>,
    outputs: Vec<Option<&'a [u8]>>,
}

/// The columns of chunks.
#[derive(Default)]
struct Chunks {
    seqs: Vec<i64>,
    firsts: Vec<i64>,
    bodies: Vec<Vec<u8>>,
}

/// The newest state of a delivery in the batch, and its bytes if it is new.
struct DeliveryRow<'a> {
    endpoint: i64,
    is_pending: bool,
    state: Vec<u8>,
    body: Option<&'a [u8]>,
}

fn cbor(value: &impl Encode<()>) -> Vec<u8> {
    minicbor::to_vec(value).expect("an image is plain data")
}

fn value<'a, T: gristmill_postgres::ToSql + Sync + Send + 'a>(value: T) -> Value<'a> {
    Box::new(value)
}

/// The statements that write a batch.
pub(super) fn queries<'a>(batch: &'a Batch, seal: &Seal) -> Vec<SqlQuery<'a>> {
    let mut queries = Vec::with_capacity(8);
    endpoints(batch, &mut queries);
    jobs(batch, seal, &mut queries);
    deliveries(batch, &mut queries);
    usage(&batch.usage, &mut queries);
    if !batch.forgotten.is_empty() {
        let keys: Vec<i64> = batch.forgotten.iter().map(|key| key.0.into()).collect();
        let delete = "DELETE FROM endpoint WHERE seq = ANY ($1::bigint[])";
        queries.push(SqlQuery::new(delete, vec![value(keys.clone())]));
        let unmark = "DELETE FROM deleting WHERE endpoint = ANY ($1::bigint[])";
        queries.push(SqlQuery::new(unmark, vec![value(keys)]));
    }
    schedules(batch, &mut queries);
    if let Some(last) = batch.dropped_records_up_to {
        let delete = "DELETE FROM idempotency WHERE seq <= $1::bigint";
        queries.push(SqlQuery::new(delete, vec![value(integer(last))]));
    }
    queries
}

fn endpoints<'a>(batch: &'a Batch, queries: &mut Vec<SqlQuery<'a>>) {
    if !batch.endpoints.is_empty() {
        let (seqs, names): (Vec<i64>, Vec<&str>) =
            batch.endpoints.iter().map(|(key, name)| (i64::from(key.0), name.as_str())).unzip();
        let insert = "INSERT INTO endpoint (seq, name) SELECT * FROM unnest($1::bigint[], $2::text[]) \
             ON CONFLICT (seq) DO NOTHING";
        queries.push(SqlQuery::new(insert, vec![value(seqs), value(names)]));
    }
    if !batch.totals.is_empty() {
        let totals = || batch.totals.iter();
        let column = |get: fn(&crate::state::job::Lifetime) -> u64| {
            value(totals().map(|(_, sum)| integer(get(sum))).collect::<Vec<_>>())
        };
        let seqs: Vec<i64> = totals().map(|(key, _)| key.0.into()).collect();
        let update = "UPDATE endpoint SET completed = new.completed, failed = new.failed, \
             retried = new.retried FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
             AS new (seq, completed, failed, retried) WHERE endpoint.seq = new.seq";
        let values = vec![
            value(seqs),
            column(|sum| sum.completed),
            column(|sum| sum.failed),
            column(|sum| sum.retried),
        ];
        queries.push(SqlQuery::new(update, values));
    }
}

fn jobs<'a>(batch: &'a Batch, seal: &Seal, queries: &mut Vec<SqlQuery<'a>>) {
    let (mut new, mut changed) = (NewJobs::default(), ChangedJobs::default());
    let (mut deleted, mut cleared, mut chunks) = (Vec::new(), Vec::new(), Chunks::default());
    let (mut seqs, mut endpoints, mut ids, mut records) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for job in &batch.jobs {
        let seq = integer(job.fixed.seq);
        match &job.kind {
            RowWrite::Insert(row) => {
                let bytes = InputBytes::of(&row.input, seal, job.fixed.seq);
                let (_, s3) = InputBytes::split(&bytes.rest).unwrap_or_default();
                let needs_input = job.row.needs_input();
                new.seqs.push(seq);
                new.ids.push(job.fixed.id.to_string());
                new.endpoints.push(job.fixed.endpoint.0.into());
                new.created_at.push(integer(job.fixed.created_at.as_millis()));
                new.fixed.push(cbor(&fixed_image(&job.fixed, row)));
                new.input_bytes.push(integer(row.input.len() as u64));
                new.statuses.push(status_code(job.row.status).into());
                new.states.push(cbor(&job.row.image()));
                new.inputs.push(needs_input.then(|| &row.input.body.as_bytes()[..]));
                new.s3.push(s3.filter(|_| needs_input).map(<[u8]>::to_vec));
                new.outputs.push(output(job));
            }
            RowWrite::Update => {
                changed.seqs.push(seq);
                changed.statuses.push(status_code(job.row.status).into());
                changed.states.push(cbor(&job.row.image()));
                changed.keep_input.push(job.row.needs_input());
                changed.keep_output.push(!job.clear_result);
                changed.outputs.push(output(job));
                if job.clear_result {
                    cleared.push(seq);
                }
            }
            // Its chunks too, whether it has any or not: with rows that are left over a later job
            // of this number would show chunks that are not its own.
            RowWrite::Delete(_) => {
                deleted.push(seq);
                cleared.push(seq);
            }
            RowWrite::NeverStored => {}
        }
        for page in &job.pages {
            chunks.seqs.push(seq);
            chunks.firsts.push(integer(page.first));
            chunks.bodies.push(pages::encode(&page.chunks).to_vec());
        }
        if let Some(idempotency) = &job.idempotency {
            seqs.push(seq);
            endpoints.push(i64::from(job.fixed.endpoint.0));
            ids.push(job.fixed.id.to_bytes().to_vec());
            records.push(cbor(&idempotency_image(*idempotency, &job.fixed)));
        }
    }
    new.add(queries);
    changed.add(queries);
    for (sql, seqs) in [
        ("DELETE FROM job WHERE seq = ANY ($1::bigint[])", deleted),
        // Before the new chunks of the same jobs.
        ("DELETE FROM chunk WHERE seq = ANY ($1::bigint[])", cleared),
    ] {
        if !seqs.is_empty() {
            queries.push(SqlQuery::new(sql, vec![value(seqs)]));
        }
    }
    if !chunks.seqs.is_empty() {
        let insert = "INSERT INTO chunk (seq, first, body) \
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) \
             ON CONFLICT (seq, first) DO UPDATE SET body = excluded.body";
        let values = vec![value(chunks.seqs), value(chunks.firsts), value(chunks.bodies)];
        queries.push(SqlQuery::new(insert, values));
    }
    if !seqs.is_empty() {
        let insert = "INSERT INTO idempotency (seq, endpoint, job, record) \
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[]) \
             ON CONFLICT (seq) DO UPDATE SET endpoint = excluded.endpoint, job = excluded.job, \
             record = excluded.record";
        queries.push(SqlQuery::new(
            insert,
            vec![value(seqs), value(endpoints), value(ids), value(records)],
        ));
    }
}

fn output(job: &JobWrite) -> Option<&[u8]> {
    job.output.as_ref().map(|output| &output.as_bytes()[..])
}

impl<'a> NewJobs<'a> {
    fn add(self, queries: &mut Vec<SqlQuery<'a>>) {
        if self.seqs.is_empty() {
            return;
        }
        let insert = "INSERT INTO job (seq, id, endpoint, created_at, fixed, input_bytes, status, state, \
             input, s3, output) \
             SELECT seq, id, endpoint, to_timestamp(created_at / 1000.0), fixed, input_bytes, status, state, \
             input, s3, output FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], \
             $5::bytea[], $6::bigint[], $7::smallint[], $8::bytea[], $9::bytea[], $10::bytea[], \
             $11::bytea[]) AS new (seq, id, endpoint, created_at, fixed, input_bytes, status, state, input, \
             s3, output)";
        queries.push(SqlQuery::new(
            insert,
            vec![
                value(self.seqs),
                value(self.ids),
                value(self.endpoints),
                value(self.created_at),
                value(self.fixed),
                value(self.input_bytes),
                value(self.statuses),
                value(self.states),
                value(self.inputs),
                value(self.s3),
                value(self.outputs),
            ],
        ));
    }
}

impl<'a> ChangedJobs<'a> {
    /// An upsert rather than an update: it finds the rows by the key, whatever the planner
    /// believes. The rows exist.
    fn add(self, queries: &mut Vec<SqlQuery<'a>>) {
        if self.seqs.is_empty() {
            return;
        }
        let upsert = "INSERT INTO job (seq, status, state, keeps_input, keeps_output, output) \
             SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bytea[], $4::boolean[], $5::boolean[], \
             $6::bytea[]) ON CONFLICT (seq) DO UPDATE SET status = excluded.status, state = excluded.state, \
             input = CASE WHEN excluded.keeps_input THEN job.input END, \
             s3 = CASE WHEN excluded.keeps_input THEN job.s3 END, \
             output = coalesce(excluded.output, CASE WHEN excluded.keeps_output THEN job.output END)";
        queries.push(SqlQuery::new(
            upsert,
            vec![
                value(self.seqs),
                value(self.statuses),
                value(self.states),
                value(self.keep_input),
                value(self.keep_output),
                value(self.outputs),
            ],
        ));
    }
}

/// A delivery may change several times in one batch, and an upsert may name a row once.
fn deliveries<'a>(batch: &'a Batch, queries: &mut Vec<SqlQuery<'a>>) {
    let mut rows: BTreeMap<i64, DeliveryRow<'a>> = BTreeMap::new();
    let mut put = |endpoint: u32, image: &DeliveryImage<'_>, body: Option<&'a [u8]>| {
        let body = body.or_else(|| rows.get(&integer(image.id)).and_then(|row| row.body));
        let is_pending = image.state == PENDING;
        let row = DeliveryRow {
            endpoint: endpoint.into(),
            is_pending,
            state: cbor(image),
            body: body.filter(|_| is_pending),
        };
        rows.insert(integer(image.id), row);
    };
    for job in &batch.jobs {
        if let Some(new) = &job.delivery {
            let endpoint = job.fixed.endpoint;
            put(endpoint.0, &DeliveryImage::of(endpoint, &new.delivery), new.body.as_deref());
        }
    }
    for (endpoint, delivery) in &batch.deliveries {
        put(endpoint.0, &DeliveryImage::of(*endpoint, delivery), None);
    }
    if !rows.is_empty() {
        let upsert = "INSERT INTO delivery (id, endpoint, is_pending, state, body) \
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::bytea[], $5::bytea[]) \
             ON CONFLICT (id) DO UPDATE SET is_pending = excluded.is_pending, state = excluded.state, \
             body = CASE WHEN excluded.is_pending THEN coalesce(excluded.body, delivery.body) END";
        let ids: Vec<i64> = rows.keys().copied().collect();
        let endpoints: Vec<i64> = rows.values().map(|row| row.endpoint).collect();
        let pending: Vec<bool> = rows.values().map(|row| row.is_pending).collect();
        let bodies: Vec<Option<&[u8]>> = rows.values().map(|row| row.body).collect();
        let states: Vec<Vec<u8>> = rows.into_values().map(|row| row.state).collect();
        let values =
            vec![value(ids), value(endpoints), value(pending), value(states), value(bodies)];
        queries.push(SqlQuery::new(upsert, values));
    }
    if !batch.dropped_deliveries.is_empty() {
        let ids: Vec<i64> = batch.dropped_deliveries.iter().map(|id| integer(id.0)).collect();
        let delete = "DELETE FROM delivery WHERE id = ANY ($1::bigint[])";
        queries.push(SqlQuery::new(delete, vec![value(ids)]));
    }
}

fn schedules<'a>(batch: &'a Batch, queries: &mut Vec<SqlQuery<'a>>) {
    let (mut numbers, mut notes, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    for (schedule, note) in &batch.schedules {
        match note {
            Some(note) => {
                numbers.push(integer(schedule.0));
                notes.push(note.as_str());
            }
            None => removed.push(integer(schedule.0)),
        }
    }
    if !numbers.is_empty() {
        let upsert = "INSERT INTO schedule (number, note) SELECT * FROM unnest($1::bigint[], $2::text[]) \
             ON CONFLICT (number) DO UPDATE SET note = excluded.note";
        queries.push(SqlQuery::new(upsert, vec![value(numbers), value(notes)]));
    }
    if !removed.is_empty() {
        let delete = "DELETE FROM schedule WHERE number = ANY ($1::bigint[])";
        queries.push(SqlQuery::new(delete, vec![value(removed)]));
    }
}

fn usage<'a>(writes: &'a [UsageWrite], queries: &mut Vec<SqlQuery<'a>>) {
    if writes.is_empty() {
        return;
    }
    let images: Vec<_> = writes.iter().map(UsageWrite::image).collect();
    let mut values: Vec<Value<'a>> = vec![
        value(images.iter().map(|row| i64::from(row.hour)).collect::<Vec<_>>()),
        value(images.iter().map(|row| row.endpoint).collect::<Vec<_>>()),
        value(images.iter().map(|row| row.template).collect::<Vec<_>>()),
        value(images.iter().map(|row| row.owner).collect::<Vec<_>>()),
        value(images.iter().map(|row| i64::from(row.run)).collect::<Vec<_>>()),
    ];
    for n in 0..9 {
        let column = images.iter().filter_map(|row| row.sum.get(n)).map(|sum| integer(*sum));
        values.push(value(column.collect::<Vec<_>>()));
    }
    // The rows are absolute, and only grow.
    let upsert = "INSERT INTO usage SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], \
         $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], \
         $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[]) \
         ON CONFLICT (hour, endpoint, template, owner, run) DO UPDATE SET jobs = excluded.jobs, \
         wall_ms = excluded.wall_ms, cpu_us = excluded.cpu_us, fuel = excluded.fuel, \
         memory_bytes_peak = excluded.memory_bytes_peak, memory_mib_ms = excluded.memory_mib_ms, \
         bytes_in = excluded.bytes_in, bytes_out = excluded.bytes_out, chunks = excluded.chunks";
    queries.push(SqlQuery::new(upsert, values));
}
