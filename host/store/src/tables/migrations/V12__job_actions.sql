-- Actions on many jobs, as JSON.

CREATE TABLE job_action (id TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL) STRICT;

PRAGMA user_version = 12;
