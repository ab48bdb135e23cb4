-- The frames of the journal have numbered fields from this version on. A job can have chosen
-- retentions. The first builds of version 7 had no marks of deletions.

CREATE TABLE IF NOT EXISTS deleting (endpoint INTEGER PRIMARY KEY) STRICT;

ALTER TABLE job ADD COLUMN retention_completed_ms INTEGER;
ALTER TABLE job ADD COLUMN retention_failed_ms INTEGER;
ALTER TABLE job ADD COLUMN retention_cancelled_ms INTEGER;

PRAGMA user_version = 8;
