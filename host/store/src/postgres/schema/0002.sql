-- The signs of life of the host with the newest session: by them other hosts find it, and notice its end.
-- Apart from `session`, whose row every transaction locks.
CREATE TABLE beat (
    session bigint PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Where other hosts reach the host; null without such an address.
    address text
) WITH (fillfactor = 50);

-- The bytes of components, in parts of 1 MiB. The last part of a component may be shorter.
CREATE TABLE component_part (
    -- SHA-256 of all parts, as hexadecimal digits.
    component text NOT NULL,
    part integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (component, part)
);
ALTER TABLE component_part ALTER body SET STORAGE EXTERNAL;
