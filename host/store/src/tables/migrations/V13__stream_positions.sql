-- The row of an archived job has the position up to which a client has read the job's stream.

ALTER TABLE job ADD COLUMN delivered INTEGER;

PRAGMA user_version = 13;
