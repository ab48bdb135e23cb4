-- The tables of version 1. `tables/schema.rs` says what they are for.

CREATE TABLE meta (
  id INTEGER PRIMARY KEY CHECK (id = 1), shard INTEGER NOT NULL, sealed BLOB NOT NULL,
  is_clean INTEGER NOT NULL, checkpointed INTEGER NOT NULL, journal_last INTEGER NOT NULL,
  journal_end INTEGER, seen_at INTEGER, starts INTEGER NOT NULL
) STRICT;

CREATE TABLE endpoint (
  seq INTEGER PRIMARY KEY, name TEXT NOT NULL,
  completed INTEGER NOT NULL, failed INTEGER NOT NULL, retried INTEGER NOT NULL
) STRICT;
CREATE TABLE deleting (endpoint INTEGER PRIMARY KEY) STRICT;

CREATE TABLE job (
  seq INTEGER PRIMARY KEY, id BLOB NOT NULL, endpoint INTEGER NOT NULL, owner TEXT NOT NULL,
  -- Of the submission: these never change.
  low_priority INTEGER NOT NULL, execution_timeout_ms INTEGER NOT NULL, ttl_ms INTEGER NOT NULL,
  retention_ms INTEGER NOT NULL, retention_completed_ms INTEGER, retention_failed_ms INTEGER,
  retention_cancelled_ms INTEGER, created_at INTEGER NOT NULL, input_bytes INTEGER NOT NULL,
  webhook TEXT, tags TEXT, trace BLOB,
  -- Of its present state.
  state INTEGER NOT NULL, claim INTEGER NOT NULL, crashes INTEGER NOT NULL,
  retries INTEGER NOT NULL, place INTEGER NOT NULL, ttl_at INTEGER NOT NULL, queued_at INTEGER,
  started_at INTEGER, finished_at INTEGER, chunk_count INTEGER NOT NULL,
  result_bytes INTEGER NOT NULL, worker TEXT, error TEXT, past BLOB,
  -- Of an archived job.
  archived INTEGER NOT NULL DEFAULT 0, purge_at INTEGER, delivered INTEGER
) STRICT;
CREATE INDEX job_in_memory ON job (endpoint) WHERE archived = 0;
CREATE INDEX archived_job_id ON job (id) WHERE archived = 1;
CREATE INDEX archived_job_state ON job (endpoint, state, seq) WHERE archived = 1;
CREATE INDEX archived_job_purge_at ON job (purge_at) WHERE archived = 1;

CREATE TABLE archived (
  endpoint INTEGER NOT NULL, owner TEXT NOT NULL, jobs INTEGER NOT NULL, kept INTEGER NOT NULL,
  PRIMARY KEY (endpoint, owner)
) STRICT, WITHOUT ROWID;
CREATE TABLE job_tag (
  endpoint INTEGER NOT NULL, tag INTEGER NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY (endpoint, tag, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE archived_time (
  block INTEGER PRIMARY KEY, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL
) STRICT;

CREATE TABLE input (
  seq INTEGER PRIMARY KEY, sum INTEGER NOT NULL, body BLOB NOT NULL, s3 BLOB
) STRICT;
CREATE TABLE output (
  seq INTEGER PRIMARY KEY, sum INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE TABLE kept (
  seq INTEGER NOT NULL, kind INTEGER NOT NULL, segment INTEGER NOT NULL, at INTEGER NOT NULL,
  len INTEGER NOT NULL, PRIMARY KEY (seq, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE chunk (
  seq INTEGER NOT NULL, first INTEGER NOT NULL, sum INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (seq, first)
) STRICT, WITHOUT ROWID;

CREATE TABLE delivery (
  seq INTEGER PRIMARY KEY, endpoint INTEGER NOT NULL, job BLOB NOT NULL, job_status TEXT NOT NULL,
  job_retries INTEGER NOT NULL, url TEXT NOT NULL, body_bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL, trace BLOB, state INTEGER NOT NULL, at INTEGER NOT NULL,
  attempts INTEGER NOT NULL, made BLOB, last_status INTEGER, last_error TEXT
) STRICT;
CREATE TABLE delivery_body (
  seq INTEGER PRIMARY KEY, sum INTEGER NOT NULL, body BLOB NOT NULL
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
CREATE TABLE job_action (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE schedule (number INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT;

PRAGMA application_id = 1198681452;
PRAGMA user_version = 1;
