//! Moves the data of a directory that no host has open into an empty database.
//!
//! A repair's [copy](crate::offline::repair) of the directory comes first: it reads the tables,
//! applies the journal, and finds damage, which an import refuses. Its rows become those that a
//! host with the database writes, with the same numbers, so that ids, claims and encrypted texts
//! stay valid. The files of the directory are not changed. The copy is below [`SCRATCH`] and is
//! removed at the end, or by the next import. After the commit the directory gets the file
//! [`IMPORTED`], with which no host starts on it; another import does not look at that file.
//!
//! **All or nothing.** All rows are one transaction, and the directory is locked meanwhile. A
//! process that is killed leaves an empty database, which the next import fills; after the commit
//! the database is not empty, and another import is refused. If the database has the rows of this
//! directory, for example because the import was killed after its commit, the refused import also
//! writes the file.
//!
//! **Bounds.** A statement has [`ROWS_MAX`] rows, or [`BYTES_MAX`] bytes and one further row: that
//! is the memory, beside one payload of each kind. The disk needs room for the copy: as much as the
//! tables and the journal. **Cost.** Each byte is read twice, and written twice.

use std::cell::OnceCell;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gristmill_core::backup::{COMPONENTS, DATABASE, IMPORTED};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::depot::PART_BYTES;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::state::JobStatus;
use gristmill_core::webhook::delivery::Delivery;
use gristmill_postgres::{Connection, DatabaseError, DatabaseUrl, SqlQuery, Transaction, Value};
use rusqlite::types::{Type, Value as Cell};
use rusqlite::{Connection as Tables, OptionalExtension as _, Row};
use sha2::{Digest as _, Sha256};

use crate::damage::Damage;
use crate::error::OpenError;
use crate::format::EndpointKey;
use crate::format::image::{DeliveryImage, IdempotencyImage, PENDING};
use crate::format::status_code;
use crate::offline::inspect::Inspected;
use crate::offline::repair::{self, Repaired};
use crate::postgres::{schema, session};
use crate::private::open_private_file;
use crate::tables::{delivery, idempotency, jobs, sql};

/// The directory of the copy, in the data directory.
const SCRATCH: &str = ".import";

/// Bounds of a statement. Rows are small, and payloads large.
const ROWS_MAX: usize = 1_000;
const BYTES_MAX: usize = 1 << 20;

/// Longest time of a statement, or of the commit.
const ANSWER_TIME_MAX: Duration = Duration::from_mins(10);

/// How often, and after which pauses, the outcome of a commit is looked for after its connection
/// was lost.
const LOOKS: usize = 30;
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The data that an import has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// All jobs.
    pub jobs: u64,
    /// Those that wait, or were running: they run when a host starts.
    pub unfinished: u64,
    /// Webhooks that wait, or that the logs of endpoints show.
    pub webhooks: u64,
    /// Those that wait.
    pub pending_webhooks: u64,
    /// Idempotency keys.
    pub idempotency_keys: u64,
    /// Templates, endpoints, handlers, images, volumes, credentials and keys.
    pub records: u64,
    /// Handlers.
    pub components: u64,
    /// Rows of usage, by hour.
    pub usage_rows: u64,
    /// Actions on many jobs.
    pub job_actions: u64,
}

/// A step of an import, for people who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportStep {
    /// The directory is being read and checked.
    Reading,
    /// So many of all jobs were sent to the database.
    Sending {
        /// Jobs so far.
        jobs: u64,
        /// All jobs.
        all: u64,
    },
    /// Everything was sent, and the database makes it durable.
    Committing,
}

/// Moves the data of the directory `dir` into the database at `url`, which must be empty.
/// `secrets_key` is the file with the key of the secrets, unless it is in the directory. Network
/// volumes, log lines and charts are files, and are not moved. Blocks.
///
/// # Errors
/// [`OpenError`]: the directory is in use, damaged, or lacks its key; the database is in use, not
/// empty, or cannot be used. Then the database has nothing of the directory, unless the error says
/// that the outcome is unknown, or that only the mark of the directory is missing
/// ([`OpenError::NotMarked`]).
pub fn import(
    dir: &Path,
    secrets_key: Option<&Path>,
    url: &DatabaseUrl,
    on_step: &mut dyn FnMut(ImportStep),
) -> Result<Imported, OpenError> {
    // First what can be found out quickly.
    let connection = Connection::new(url).map_err(OpenError::Thread)?;
    let mut connection = connection.with_answer_time_max(ANSWER_TIME_MAX);
    schema::prepare(&mut connection)?;
    let inspected = Inspected::open(dir, secrets_key)?;
    let in_dir = |source| OpenError::Directory { dir: dir.to_owned(), source };
    // Before anything is refused: the copy of an import that was killed is as large as the tables.
    let scratch = Scratch::new(dir).map_err(in_dir)?;
    let (shard, sealed): (i64, Vec<u8>) =
        inspected.db.query_row("SELECT shard, sealed FROM meta", (), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if let Err(refused) = check_empty(&mut connection) {
        let is_used = matches!(refused, OpenError::DatabaseNotEmpty { .. });
        if is_used && is_of_directory(&mut connection, (shard, &sealed))? {
            mark(dir)?;
        }
        return Err(refused);
    }
    check_key(&inspected, dir, secrets_key)?;
    on_step(ImportStep::Reading);
    let copied = repair::copy(&inspected, &scratch.0)?;
    if let Some(damage) = copied.losses.first().cloned() {
        return Err(OpenError::from(damage));
    }
    let tables = Tables::open(scratch.0.join(DATABASE))?;
    if session::try_lock(&mut connection)?.is_none() {
        return Err(OpenError::DatabaseInUse);
    }
    let (done, committed) = send(&tables, &mut connection, dir, copied, (shard, &sealed), on_step)?;
    match committed {
        Ok(()) => {}
        Err(DatabaseError::Unavailable(reason)) => match has_committed(&mut connection) {
            Some(true) => {}
            Some(false) => return Err(OpenError::DatabaseUnavailable(reason)),
            None => {
                return Err(OpenError::DatabaseUnavailable(format!(
                    "{reason}: whether the import was completed is unknown. Run it again: a database \
                     that has the data is refused, since it is not empty"
                )));
            }
        },
        Err(error) => return Err(error.into()),
    }
    mark(dir)?;
    Ok(done)
}

/// Keeps hosts from starting on the directory, durably.
fn mark(dir: &Path) -> Result<(), OpenError> {
    let marked = open_private_file(&dir.join(IMPORTED))
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::File::open(dir)?.sync_all());
    marked.map_err(|source| OpenError::NotMarked { dir: dir.to_owned(), source })
}

/// Whether an import has filled the database from the directory with this shard, and this text that
/// shows the key: the text has random bytes.
fn is_of_directory(
    connection: &mut Connection,
    (shard, sealed): (i64, &[u8]),
) -> Result<bool, DatabaseError> {
    let sql = "SELECT 1 FROM meta WHERE shard = $1::bigint AND sealed = $2::bytea";
    let values: Vec<Value<'_>> = vec![Box::new(shard), Box::new(sealed)];
    Ok(!connection.query(&SqlQuery::new(sql, values))?.is_empty())
}

/// Sends the tables of a copy and the handlers, and returns what the commit has answered. `meta` is
/// the shard, and the text that shows the key.
fn send(
    tables: &Tables,
    connection: &mut Connection,
    dir: &Path,
    copied: Repaired,
    (shard, sealed): (i64, &[u8]),
    on_step: &mut dyn FnMut(ImportStep),
) -> Result<(Imported, Result<(), DatabaseError>), OpenError> {
    let (to, all) = (connection.begin()?, copied.jobs);
    let mut import = Import { tables, to, done: Imported::default(), all, on_step };
    import.to.script("SET LOCAL idle_in_transaction_session_timeout = 0")?;
    let insert = "INSERT INTO meta (id, shard, sealed) VALUES (1, $1::bigint::integer, $2::bytea)";
    let values: Vec<Value<'_>> = vec![Box::new(shard), Box::new(sealed)];
    import.to.execute(&SqlQuery::new(insert, values))?;
    import.copy_all()?;
    for component in copied.kept_components.into_iter().flatten() {
        import.copy_component(dir, component)?;
    }
    let Import { to, done, on_step, .. } = import;
    on_step(ImportStep::Committing);
    Ok((done, to.commit()))
}

/// Refuses a database that a host, or an import, has used.
fn check_empty(connection: &mut Connection) -> Result<(), OpenError> {
    let sql = "SELECT (SELECT count(*) FROM meta) + (SELECT count(*) FROM session) \
         + (SELECT count(*) FROM catalog), (SELECT count(*) FROM job)";
    let rows = connection.query(&SqlQuery::new(sql, Vec::new()))?;
    let counts = rows.first().map_or((0, 0), |row| (row.get::<_, i64>(0), row.get::<_, i64>(1)));
    match counts {
        (0, 0) => Ok(()),
        (_, jobs) => Err(OpenError::DatabaseNotEmpty { jobs: jobs.unsigned_abs() }),
    }
}

/// Refuses a directory whose texts are encrypted with several keys, or with none that is known: the
/// rows are copied as they are.
fn check_key(
    inspected: &Inspected,
    dir: &Path,
    secrets_key: Option<&Path>,
) -> Result<(), OpenError> {
    let in_dir = dir.join(gristmill_core::backup::SECRETS_KEY);
    let refused = |details: &str| OpenError::SecretsKey {
        file: secrets_key.unwrap_or(&in_dir).to_owned(),
        details: details.to_owned(),
    };
    let Some(seal) = &inspected.seal else {
        return Err(refused("the file is missing; name it with --secrets-key"));
    };
    match seal.read_word(&inspected.word()?)?.is_current {
        true => Ok(()),
        false => Err(refused(
            "a rotation of this key was not completed: start the host once without the database, which \
             completes it",
        )),
    }
}

/// Whether the transaction of the import was committed; `None` while the database cannot be
/// reached, or has not decided yet.
fn has_committed(connection: &mut Connection) -> Option<bool> {
    for _ in 0..LOOKS {
        std::thread::sleep(LOOK_PAUSE);
        // The server may still commit on the lost connection, for example when a synchronous
        // standby returns, and shows no row until then. That connection has the lock until its end,
        // so the lock is taken before the rows are read.
        let Ok(is_decided) = session::try_lock(connection).map(|it| it.is_some()) else { continue };
        let rows = connection.query(&SqlQuery::new("SELECT 1 FROM meta", Vec::new()));
        match rows.map(|rows| !rows.is_empty()) {
            // The server shows the commit also when no synchronous standby has it, as after its
            // restart. The commit of this change waits for a standby, which then has the other one.
            Ok(true) if connection.script("UPDATE meta SET shard = shard").is_ok() => {
                return Some(true);
            }
            Ok(false) if is_decided => return Some(false),
            Ok(_) | Err(_) => {}
        }
    }
    None
}

/// The directory of the copy, which is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path) -> io::Result<Self> {
        let path = dir.join(SCRATCH);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            // That of an import that was killed.
            Ok(()) | Err(_) => Ok(Self(path)),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next import removes it otherwise.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An import in progress.
struct Import<'a> {
    tables: &'a Tables,
    to: Transaction<'a>,
    done: Imported,
    all: u64,
    on_step: &'a mut dyn FnMut(ImportStep),
}

/// Tables whose columns are those of the database, with the insertion of an array for each column.
const SAME: [(&str, &str); 7] = [
    (
        "SELECT seq, name, completed, failed, retried FROM endpoint ORDER BY seq",
        "INSERT INTO endpoint (seq, name, completed, failed, retried) SELECT * FROM \
         unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])",
    ),
    (
        "SELECT endpoint FROM deleting",
        "INSERT INTO deleting (endpoint) SELECT * FROM unnest($1::bigint[])",
    ),
    (
        "SELECT seq, first, body FROM chunk ORDER BY seq, first",
        "INSERT INTO chunk (seq, first, body) \
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])",
    ),
    (
        "SELECT hour, endpoint, template, owner, run, jobs, wall_ms, cpu_us, fuel, memory_bytes_peak, \
         memory_mib_ms, bytes_in, bytes_out, chunks FROM usage",
        "INSERT INTO usage SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], \
         $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], \
         $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])",
    ),
    (
        "SELECT kind, name, body FROM catalog",
        "INSERT INTO catalog (kind, name, body) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[])",
    ),
    (
        "SELECT id, body FROM job_action",
        "INSERT INTO job_action (id, body) SELECT * FROM unnest($1::text[], $2::text[])",
    ),
    (
        "SELECT number, note FROM schedule",
        "INSERT INTO schedule (number, note) SELECT * FROM unnest($1::bigint[], $2::text[])",
    ),
];

impl Import<'_> {
    fn copy_all(&mut self) -> Result<(), OpenError> {
        let mut counts = Vec::with_capacity(SAME.len());
        for (select, insert) in SAME {
            counts.push(self.copy_same(select, insert)?);
        }
        if let [_, _, _, usage_rows, records, job_actions, _] = counts[..] {
            self.done = Imported { usage_rows, records, job_actions, ..self.done };
        }
        self.copy_jobs()?;
        self.copy_idempotency_keys()?;
        self.copy_webhooks()
    }

    /// Copies a table with the same columns, and returns the number of its rows.
    fn copy_same(&mut self, select: &str, insert: &'static str) -> Result<u64, OpenError> {
        let tables = self.tables;
        let mut statement = tables.prepare(select)?;
        let columns = statement.column_count();
        let mut rows = statement.query(())?;
        let (mut copied, mut batch) = (0, Batch::new(insert));
        while let Some(row) = rows.next()? {
            let cells = (0..columns).map(|column| row.get(column));
            batch.add(cells.collect::<rusqlite::Result<Vec<Cell>>>()?, &mut self.to)?;
            copied += 1;
        }
        batch.send(&mut self.to)?;
        Ok(copied)
    }

    fn copy_jobs(&mut self) -> Result<(), OpenError> {
        let mut batch = Batch::new(
            "INSERT INTO job (seq, id, endpoint, created_at, fixed, input_bytes, status, state, input, s3, output) \
             SELECT seq, id, endpoint, to_timestamp(created_at / 1000.0), fixed, input_bytes, status, state, \
             input, s3, output FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bytea[], \
             $6::bigint[], $7::bigint[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[]) AS new (seq, id, \
             endpoint, created_at, fixed, input_bytes, status, state, input, s3, output)",
        );
        let unfinished =
            [JobStatus::InQueue, JobStatus::InProgress].map(|status| status_code(Some(status)));
        let tables = self.tables;
        let mut statement = tables.prepare(jobs::SELECT_JOBS)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let (cells, status) = self.job(row)?;
            self.done.jobs += 1;
            self.done.unfinished += u64::from(unfinished.contains(&status));
            if batch.add(cells, &mut self.to)? {
                (self.on_step)(ImportStep::Sending { jobs: self.done.jobs, all: self.all });
            }
        }
        batch.send(&mut self.to)?;
        Ok(())
    }

    /// The row of a job, and the code of its status.
    fn job(&self, row: &Row<'_>) -> rusqlite::Result<(Vec<Cell>, u8)> {
        let image = jobs::read(row)?;
        let id =
            JobId::from_bytes(&image.id).map_err(|error| sql::invalid(1, Type::Blob, error))?;
        let seq = sql::integer(image.seq);
        let input = "SELECT body, s3 FROM input WHERE seq = ?1";
        let input = self
            .tables
            .prepare_cached(input)?
            .query_row([seq], |row| Ok((row.get::<_, Cell>(0)?, row.get::<_, Cell>(1)?)));
        let (input, s3) = input.optional()?.unwrap_or((Cell::Null, Cell::Null));
        let output = "SELECT body FROM output WHERE seq = ?1";
        let output = self.tables.prepare_cached(output)?.query_row([seq], |row| row.get(0));
        let cells = vec![
            Cell::Integer(seq),
            Cell::Text(id.to_string()),
            Cell::Integer(image.endpoint.into()),
            Cell::Integer(sql::integer(image.fixed.created_at)),
            cbor(&image.fixed),
            Cell::Integer(image.input_bytes.into()),
            Cell::Integer(image.row.state.into()),
            cbor(&image.row),
            input,
            s3,
            output.optional()?.unwrap_or(Cell::Null),
        ];
        Ok((cells, image.row.state))
    }

    fn copy_idempotency_keys(&mut self) -> Result<(), OpenError> {
        let mut batch = Batch::new(
            "INSERT INTO idempotency (seq, endpoint, job, record) \
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[])",
        );
        let (mut sent, mut copied) = (Ok(false), 0);
        let take = |seq, endpoint: EndpointKey, job: JobId, record: IdempotencyImage| {
            if sent.is_ok() {
                let cells = vec![
                    Cell::Integer(sql::integer(seq)),
                    Cell::Integer(endpoint.0.into()),
                    Cell::Blob(job.to_bytes().to_vec()),
                    cbor(&record),
                ];
                sent = batch.add(cells, &mut self.to);
                copied += 1;
            }
        };
        idempotency::load(self.tables, take)?;
        sent?;
        batch.send(&mut self.to)?;
        self.done.idempotency_keys = copied;
        Ok(())
    }

    fn copy_webhooks(&mut self) -> Result<(), OpenError> {
        let mut batch = Batch::new(
            "INSERT INTO delivery (id, endpoint, is_pending, state, body) \
             SELECT id, endpoint, is_pending = 1, state, body FROM \
             unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[]) \
             AS new (id, endpoint, is_pending, state, body)",
        );
        let (tables, mut done) = (self.tables, self.done);
        each_webhook(tables, |endpoint, found| {
            let image = DeliveryImage::of(endpoint, found);
            let is_pending = image.state == PENDING;
            done.webhooks += 1;
            done.pending_webhooks += u64::from(is_pending);
            let cells = vec![
                Cell::Integer(sql::integer(image.id)),
                Cell::Integer(endpoint.0.into()),
                Cell::Integer(is_pending.into()),
                cbor(&image),
                body(tables, &image, is_pending)?,
            ];
            batch.add(cells, &mut self.to)?;
            Ok(())
        })?;
        batch.send(&mut self.to)?;
        self.done = done;
        Ok(())
    }

    /// Copies a handler, whose bytes must have the digest in its name.
    fn copy_component(&mut self, dir: &Path, component: ComponentDigest) -> Result<(), OpenError> {
        let path = dir.join(COMPONENTS).join(format!("{component}.wasm"));
        let damaged = |details: String| Damage { file: path.clone(), offset: None, details };
        let mut file = fs::File::open(&path).map_err(|error| damaged(error.to_string()))?;
        let (name, mut sum) = (component.to_string(), Sha256::new());
        for part in 0_i32.. {
            let mut bytes = Vec::with_capacity(PART_BYTES);
            let read = (&mut file).take(PART_BYTES as u64).read_to_end(&mut bytes);
            if read.map_err(|error| damaged(error.to_string()))? == 0 {
                break;
            }
            sum.update(&bytes);
            let insert = "INSERT INTO component_part (component, part, body) \
                 VALUES ($1::text, $2::integer, $3::bytea)";
            let values: Vec<Value<'_>> =
                vec![Box::new(&name), Box::new(part), Box::new(&bytes[..])];
            self.to.execute(&SqlQuery::new(insert, values))?;
        }
        if ComponentDigest::from_sha256(sum.finalize().into()) != component {
            let details = "this handler does not match the digest in its name".to_owned();
            return Err(damaged(details).into());
        }
        self.done.components += 1;
        Ok(())
    }
}

/// Passes each webhook to `take`, until the first error. A webhook of an endpoint that is deleted
/// is left out: a start removes it.
fn each_webhook(
    tables: &Tables,
    mut take: impl FnMut(EndpointKey, &Delivery) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    // An endpoint whose row cannot be read must not look like a deleted one.
    let unreadable = OnceCell::new();
    let name = |key| {
        endpoint_name(tables, key).unwrap_or_else(|error| {
            // The first error is enough.
            let _ = unreadable.set(error);
            None
        })
    };
    let mut taken = Ok(());
    delivery::load(tables, name, |endpoint, found| {
        if let (Ok(()), Ok(found)) = (&taken, found) {
            taken = take(endpoint, &found);
        }
    })?;
    unreadable.into_inner().map_or(taken, |error| Err(error.into()))
}

/// The name of an endpoint; `None` when it is deleted.
fn endpoint_name(tables: &Tables, key: EndpointKey) -> rusqlite::Result<Option<EndpointId>> {
    let mut find = tables.prepare_cached("SELECT name FROM endpoint WHERE seq = ?1")?;
    let name: Option<String> = find.query_row([key.0], |row| row.get(0)).optional()?;
    let name = name.map(|name| EndpointId::new(&name)).transpose();
    name.map_err(|error| sql::invalid(0, Type::Text, error))
}

/// The bytes that a webhook sends, while it is pending.
fn body(tables: &Tables, image: &DeliveryImage<'_>, is_pending: bool) -> rusqlite::Result<Cell> {
    if !is_pending {
        return Ok(Cell::Null);
    }
    let sql = "SELECT body FROM delivery_body WHERE seq = ?1";
    let mut statement = tables.prepare_cached(sql)?;
    let body = statement.query_row([sql::integer(image.id)], |row| row.get(0));
    Ok(body.optional()?.unwrap_or(Cell::Null))
}

fn cbor(value: &impl minicbor::Encode<()>) -> Cell {
    Cell::Blob(minicbor::to_vec(value).expect("an image is plain data"))
}

/// Rows that one statement inserts.
struct Batch {
    insert: &'static str,
    columns: Vec<Column>,
    rows: usize,
    bytes: usize,
}

/// The values of a column. Its first value decides about the type, and columns that may be empty
/// are bytes.
enum Column {
    Numbers(Vec<i64>),
    Texts(Vec<String>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl Batch {
    fn new(insert: &'static str) -> Self {
        Self { insert, columns: Vec::new(), rows: 0, bytes: 0 }
    }

    /// Adds a row. Returns whether the rows were sent, because they were enough for a statement.
    fn add(&mut self, cells: Vec<Cell>, to: &mut Transaction<'_>) -> Result<bool, DatabaseError> {
        if self.columns.is_empty() {
            self.columns.extend(cells.iter().map(Column::of));
        }
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            self.bytes += column.add(cell)?;
        }
        self.rows += 1;
        let is_full = self.rows >= ROWS_MAX || self.bytes >= BYTES_MAX;
        if is_full {
            self.send(to)?;
        }
        Ok(is_full)
    }

    fn send(&mut self, to: &mut Transaction<'_>) -> Result<(), DatabaseError> {
        (self.rows, self.bytes) = (0, 0);
        let columns = std::mem::take(&mut self.columns);
        if columns.is_empty() {
            return Ok(());
        }
        let values = columns.into_iter().map(|column| -> Value<'_> {
            match column {
                Column::Numbers(values) => Box::new(values),
                Column::Texts(values) => Box::new(values),
                Column::Bytes(values) => Box::new(values),
            }
        });
        to.execute(&SqlQuery::new(self.insert, values.collect())).map(drop)
    }
}

impl Column {
    fn of(first: &Cell) -> Self {
        match first {
            Cell::Integer(_) => Self::Numbers(Vec::new()),
            Cell::Text(_) => Self::Texts(Vec::new()),
            Cell::Null | Cell::Real(_) | Cell::Blob(_) => Self::Bytes(Vec::new()),
        }
    }

    /// Adds a value, and returns the bytes that it takes.
    fn add(&mut self, cell: Cell) -> Result<usize, DatabaseError> {
        let bytes = match &cell {
            Cell::Text(text) => text.len(),
            Cell::Blob(bytes) => bytes.len(),
            Cell::Integer(_) | Cell::Null | Cell::Real(_) => size_of::<i64>(),
        };
        match (self, cell) {
            (Self::Numbers(values), Cell::Integer(value)) => values.push(value),
            (Self::Texts(values), Cell::Text(value)) => values.push(value),
            (Self::Bytes(values), Cell::Blob(value)) => values.push(Some(value)),
            (Self::Bytes(values), Cell::Null) => values.push(None),
            (_, other) => {
                let details = format!("a column has values of another type: {}", other.data_type());
                return Err(DatabaseError::Refused(details));
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{ShardId, SubmissionKind};
    use gristmill_core::time::Timestamp;
    use gristmill_core::webhook::delivery::{DeliveryId, DeliveryOutcome, DeliveryState};

    use super::*;
    use crate::tables::schema;

    fn webhook() -> Delivery {
        Delivery {
            id: DeliveryId(7),
            endpoint: EndpointId::new("mill").unwrap(),
            job: JobId::generate(SubmissionKind::Async, ShardId(0)),
            job_status: JobStatus::Completed,
            job_retries: 0,
            url: "https://receiver.example".to_owned(),
            body_bytes: 2,
            created_at: Timestamp::from_millis(1),
            state: DeliveryState::Pending { due_at: Timestamp::from_millis(1) },
            attempts: 0,
            made: Vec::new(),
            trace: None,
            last: DeliveryOutcome::default(),
        }
    }

    /// Tables with one webhook, and the webhooks that an import would copy after this change of the
    /// tables.
    fn copied_after(change: &str) -> Result<Vec<Delivery>, String> {
        let mut tables = Tables::open_in_memory().unwrap();
        schema::create(&mut tables).unwrap();
        tables.execute("INSERT INTO endpoint VALUES (1, 'mill', 0, 0, 0)", ()).unwrap();
        delivery::put(&tables, &DeliveryImage::of(EndpointKey(1), &webhook()), Some(b"{}"))
            .unwrap();
        tables.execute_batch(change).unwrap();
        let mut copied = Vec::new();
        let done = each_webhook(&tables, |_, found| {
            copied.push(found.clone());
            Ok(())
        });
        done.map(|()| copied).map_err(|error| error.to_string())
    }

    #[test]
    fn a_webhook_is_not_dropped_when_its_endpoint_cannot_be_read() {
        let copied = |change| copied_after(change).map(|webhooks| webhooks.len());
        assert_eq!(copied(""), Ok(1));
        assert_eq!(copied("DELETE FROM endpoint"), Ok(0), "the endpoint is deleted");
        let unreadable = [
            ("DROP TABLE endpoint", "no such table"),
            ("UPDATE endpoint SET name = ''", "type"),
            ("UPDATE endpoint SET name = CAST(x'ff' AS TEXT)", "utf-8"),
        ];
        for (change, reason) in unreadable {
            let refused = copied(change).expect_err(change);
            assert!(refused.contains(reason), "{change}: {refused}");
        }
    }
}
