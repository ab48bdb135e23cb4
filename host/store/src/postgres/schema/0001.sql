-- The newest row is the only session that may write.
CREATE TABLE session (
    session bigint PRIMARY KEY,
    is_alive boolean NOT NULL,
    -- Whether the session was closed in order.
    is_clean boolean NOT NULL,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The signs of life of the host with the newest session: by them other hosts find it, and notice its end.
-- Apart from `session`, whose row every transaction locks.
CREATE TABLE beat (
    session bigint PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Where other hosts reach the host; null without such an address.
    address text
) WITH (fillfactor = 50);

-- The numbers of the newest commits of a session: a host that has lost its connection during a commit
-- looks here whether the commit took place.
CREATE TABLE commit_log (
    session bigint NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (session, n)
);

CREATE TABLE meta (
    id smallint PRIMARY KEY CHECK (id = 1),
    -- The shard in the ids of jobs.
    shard integer NOT NULL,
    -- Shows which key the secrets are encrypted with.
    sealed bytea NOT NULL
);

CREATE TABLE endpoint (
    seq bigint PRIMARY KEY,
    name text NOT NULL,
    completed bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    retried bigint NOT NULL DEFAULT 0
);

-- Endpoints that are being deleted: the catalog does not have them any more.
CREATE TABLE deleting (endpoint bigint PRIMARY KEY);

CREATE TABLE job (
    seq bigint PRIMARY KEY,
    -- The columns up to `input_bytes` are written once, with a new job.
    id text,
    endpoint bigint,
    created_at timestamptz,
    -- CBOR with a number for each field, as in the journal.
    fixed bytea,
    input_bytes bigint,
    status smallint NOT NULL,
    -- CBOR, as above.
    state bytea NOT NULL,
    -- Whether the last change left the input, or the output and the chunks, in place.
    keeps_input boolean NOT NULL DEFAULT true,
    keeps_output boolean NOT NULL DEFAULT true,
    input bytea,
    -- Credentials for object storage, encrypted.
    s3 bytea,
    output bytea
) WITH (fillfactor = 60);
ALTER TABLE job ALTER input SET STORAGE EXTERNAL, ALTER output SET STORAGE EXTERNAL;

CREATE TABLE chunk (
    seq bigint NOT NULL,
    first bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (seq, first)
);
ALTER TABLE chunk ALTER body SET STORAGE EXTERNAL;

CREATE TABLE delivery (
    id bigint PRIMARY KEY,
    endpoint bigint NOT NULL,
    is_pending boolean NOT NULL,
    state bytea NOT NULL,
    -- The bytes to send, until the delivery ends.
    body bytea
) WITH (fillfactor = 80);
ALTER TABLE delivery ALTER body SET STORAGE EXTERNAL;

CREATE TABLE idempotency (
    seq bigint PRIMARY KEY,
    endpoint bigint NOT NULL,
    job bytea NOT NULL,
    record bytea NOT NULL
);

CREATE TABLE usage (
    hour bigint NOT NULL,
    endpoint text NOT NULL,
    template text NOT NULL,
    owner text NOT NULL,
    run bigint NOT NULL,
    jobs bigint NOT NULL,
    wall_ms bigint NOT NULL,
    cpu_us bigint NOT NULL,
    fuel bigint NOT NULL,
    memory_bytes_peak bigint NOT NULL,
    memory_mib_ms bigint NOT NULL,
    bytes_in bigint NOT NULL,
    bytes_out bigint NOT NULL,
    chunks bigint NOT NULL,
    PRIMARY KEY (hour, endpoint, template, owner, run)
) WITH (fillfactor = 60);

CREATE TABLE catalog (
    kind text NOT NULL,
    name text NOT NULL,
    -- The entry as JSON, encrypted.
    body bytea NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE job_action (id text PRIMARY KEY, body text NOT NULL);

-- What the scheduler has noted about each schedule, as JSON.
CREATE TABLE schedule (number bigint PRIMARY KEY, note text NOT NULL) WITH (fillfactor = 60);

-- The bytes of components, in parts of 1 MiB. The last part of a component may be shorter.
CREATE TABLE component_part (
    -- SHA-256 of all parts, as hexadecimal digits.
    component text NOT NULL,
    part integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (component, part)
);
ALTER TABLE component_part ALTER body SET STORAGE EXTERNAL;

-- Jobs for people: the names of their endpoints and states.
CREATE VIEW jobs AS
    SELECT job.id, endpoint.name AS endpoint,
        (ARRAY['IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELLED', 'TIMED_OUT'])[job.status + 1]
            AS status,
        job.created_at, job.input_bytes, octet_length(job.output) AS output_bytes
    FROM job JOIN endpoint ON endpoint.seq = job.endpoint;
