-- Jobs have tags. Archived jobs are found by tag, and by the time of their submission: for each 1,024 numbers of
-- jobs, the earliest and the latest time at which an archived job among them was submitted.

ALTER TABLE job ADD COLUMN tags TEXT;
CREATE TABLE job_tag (
  endpoint INTEGER NOT NULL, tag INTEGER NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY (endpoint, tag, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE archived_time (
  block INTEGER PRIMARY KEY, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL
) STRICT;
INSERT INTO archived_time (block, first_at, last_at)
  SELECT seq / 1024, min(created_at), max(created_at) FROM job WHERE archived = 1 GROUP BY seq / 1024;

PRAGMA user_version = 11;
