-- Checksums of payloads, the end of the journal, and counts of bytes. Columns are added and rows
-- stay as they are, so it takes no time.

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

PRAGMA user_version = 7;
