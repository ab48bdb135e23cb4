//! The tables, and the one row that describes the file.
//!
//! Tables are keyed by a growing number, so that every insertion is at their end. There is no
//! secondary index: all other lookups happen in memory, which is filled by one scan when the store
//! is opened.

/// Marks a database file as ours ("Grml").
pub(crate) const APPLICATION_ID: i64 = 0x4772_6d6c;

/// Changes with the tables, and with the content of the journal's frames. A file with a greater
/// number is refused.
pub(crate) const VERSION: i64 = 7;

/// The oldest version that is read. A file of it is upgraded when it is opened.
pub(crate) const VERSION_MIN: i64 = 6;

/// From version 6 to 7. Columns are added and rows stay as they are, so it takes no time.
pub(crate) const UPGRADE_FROM_6: &str = "
ALTER TABLE job ADD COLUMN input_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN result_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN queued_at INTEGER;
ALTER TABLE meta ADD COLUMN journal_last INTEGER;
ALTER TABLE meta ADD COLUMN journal_end INTEGER;
ALTER TABLE meta ADD COLUMN seen_at INTEGER;
ALTER TABLE input ADD COLUMN sum INTEGER;
ALTER TABLE output ADD COLUMN sum INTEGER;
ALTER TABLE chunk ADD COLUMN sum INTEGER;
ALTER TABLE delivery_body ADD COLUMN sum INTEGER;
";

/// The tables of version 7.
///
/// * `meta`: one row. `is_clean` is 1 only between an orderly close and the next start; `sealed` is
///   a text that only the right key decrypts; `checkpointed` is the last segment of the journal
///   that is checkpointed; `journal_last` is a segment that exists, the newest one when it was
///   recorded; `journal_end` is its end, between an orderly close and the next start; `seen_at` is
///   the newest time that the host has recorded.
/// * `endpoint`: endpoints that had jobs, with their counts over their whole life.
/// * `job`: one row for each job. State codes are in `row.rs`; times are milliseconds since the
///   Unix epoch. The columns up to `webhook`, and `input_bytes`, never change. `result_bytes`
///   counts the output and the chunks of the last attempt. `queued_at` is null for a job that was
///   queued only once, by its submission.
/// * `input`, `output`: payloads, apart from `job` so that a change of state stays small. A job
///   that can never run again has no input. `s3` is encrypted JSON. If a FAILED job's row has only
///   the beginning of its error, its output has the whole error.
/// * `sum` in all tables of payloads: the CRC-32 of `body`; null in rows of version 6.
/// * `kept`: the locations of inputs and outputs that stay in the journal. Codes of kinds are in
///   `payloads.rs`.
/// * `chunk`: pages of stream chunks, by job and index of the page's first chunk.
/// * `repeat`: idempotency records, by the number of their job, which may be deleted.
/// * `usage`: usage by hours since the Unix epoch, with names instead of numbers, since a row
///   outlives the named objects. `run` is explained in `meters.rs`.
/// * `catalog`: templates, endpoints, components, images and keys, as encrypted JSON.
/// * `deleting`: see `deleting.rs`.
/// * `delivery`: pending webhooks, and the newest that have ended. State codes are in
///   `delivery.rs`; `at` is the time of the next attempt, or of the end.
/// * `delivery_body`: the bytes that a pending webhook sends; separate from, and independent of,
///   the job's rows.
pub(crate) const TABLES: &str = "
CREATE TABLE meta (
  id INTEGER PRIMARY KEY CHECK (id = 1), node INTEGER NOT NULL, is_clean INTEGER NOT NULL,
  sealed BLOB NOT NULL, settled INTEGER NOT NULL, journal_last INTEGER, journal_end INTEGER,
  seen_at INTEGER
) STRICT;
CREATE TABLE endpoint (
  seq INTEGER PRIMARY KEY, name TEXT NOT NULL,
  completed INTEGER NOT NULL, failed INTEGER NOT NULL, retried INTEGER NOT NULL
) STRICT;
CREATE TABLE job (
  seq INTEGER PRIMARY KEY, id BLOB NOT NULL, endpoint INTEGER NOT NULL, owner TEXT NOT NULL,
  low_priority INTEGER NOT NULL, execution_timeout_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL,
  retention_ms INTEGER NOT NULL, created_at INTEGER NOT NULL, webhook TEXT,
  state INTEGER NOT NULL, claim INTEGER NOT NULL, crashes INTEGER NOT NULL,
  retries INTEGER NOT NULL, place INTEGER NOT NULL, ttl_at INTEGER NOT NULL,
  started_at INTEGER, finished_at INTEGER, worker TEXT, error TEXT, chunk_count INTEGER NOT NULL,
  input_bytes INTEGER NOT NULL DEFAULT 0, result_bytes INTEGER NOT NULL DEFAULT 0, queued_at INTEGER
) STRICT;
CREATE TABLE input (
  seq INTEGER PRIMARY KEY, body BLOB NOT NULL, s3 BLOB, sum INTEGER
) STRICT;
CREATE TABLE output (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, sum INTEGER) STRICT;
CREATE TABLE kept (
  seq INTEGER NOT NULL, kind INTEGER NOT NULL, segment INTEGER NOT NULL, at INTEGER NOT NULL,
  len INTEGER NOT NULL, PRIMARY KEY (seq, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE chunk (
  seq INTEGER NOT NULL, first INTEGER NOT NULL, body BLOB NOT NULL, sum INTEGER,
  PRIMARY KEY (seq, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE delivery (
  seq INTEGER PRIMARY KEY, endpoint INTEGER NOT NULL, job BLOB NOT NULL, job_status TEXT NOT NULL,
  job_retries INTEGER NOT NULL, url TEXT NOT NULL, body_bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL,
  attempts INTEGER NOT NULL, last_status INTEGER, last_error TEXT
) STRICT;
CREATE TABLE delivery_body (
  seq INTEGER PRIMARY KEY, body BLOB NOT NULL, sum INTEGER
) STRICT;
CREATE TABLE repeat (
  seq INTEGER PRIMARY KEY, endpoint INTEGER NOT NULL, key BLOB NOT NULL, content BLOB NOT NULL,
  job BLOB NOT NULL, at INTEGER NOT NULL
) STRICT;
CREATE TABLE usage (
  hour INTEGER NOT NULL, endpoint TEXT NOT NULL, template TEXT NOT NULL, owner TEXT NOT NULL,
  run INTEGER NOT NULL, jobs INTEGER NOT NULL, wall_ms INTEGER NOT NULL, cpu_us INTEGER NOT NULL,
  fuel INTEGER NOT NULL, memory_bytes_peak INTEGER NOT NULL, memory_mib_ms INTEGER NOT NULL,
  bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL, chunks INTEGER NOT NULL,
  PRIMARY KEY (hour, endpoint, template, owner, run)
) STRICT, WITHOUT ROWID;
CREATE TABLE catalog (
  kind TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
";
