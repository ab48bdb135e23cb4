-- The jobs that have ended leave memory. Their rows are marked as archived, have the time of their deletion,
-- and are found by id, by endpoint and status, and by that time. Their number and bytes are summed, so that a
-- start does not read them. The index of the other rows is made by one scan of the jobs.

ALTER TABLE job ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN purge_at INTEGER;
CREATE INDEX job_in_memory ON job (endpoint) WHERE archived = 0;
CREATE INDEX archived_job_id ON job (id) WHERE archived = 1;
CREATE INDEX archived_job_state ON job (endpoint, state, seq) WHERE archived = 1;
CREATE INDEX archived_job_purge_at ON job (purge_at) WHERE archived = 1;
CREATE TABLE archived (
  endpoint INTEGER NOT NULL, owner TEXT NOT NULL, jobs INTEGER NOT NULL, kept INTEGER NOT NULL,
  PRIMARY KEY (endpoint, owner)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 10;
