-- Jobs and webhooks have their position in a distributed trace: 25 bytes.

ALTER TABLE job ADD COLUMN trace BLOB;
ALTER TABLE delivery ADD COLUMN trace BLOB;

PRAGMA user_version = 14;
