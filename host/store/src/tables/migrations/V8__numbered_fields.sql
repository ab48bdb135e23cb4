-- The frames of the journal have numbered fields from this version on. The tables differ only from
-- those of the first builds of version 7, which had no marks of deletions.

CREATE TABLE IF NOT EXISTS deleting (endpoint INTEGER PRIMARY KEY) STRICT;

PRAGMA user_version = 8;
