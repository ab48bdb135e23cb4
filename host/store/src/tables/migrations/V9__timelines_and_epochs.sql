-- A job has its earlier attempts, and a webhook the times of its attempts. The starts of the store
-- are counted.

ALTER TABLE job ADD COLUMN past BLOB;
ALTER TABLE delivery ADD COLUMN made BLOB;
ALTER TABLE meta ADD COLUMN starts INTEGER NOT NULL DEFAULT 0;

PRAGMA user_version = 9;
