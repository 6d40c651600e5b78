-- Version 1 of the layout.  A migration that has been released is never edited: the next change is the next file.

CREATE TABLE sg_meta (
    key text PRIMARY KEY,             -- 'version' of the layout, 'next_job_id', 'handle_prefix'
    value bigint NOT NULL,
    text text NOT NULL DEFAULT ''
);

-- One row: which server owns the jobs.  Each of its commits adds one to the beat, and so does an idle server a few
-- times per lease.  Another server may take over after it has seen the same epoch and beat for a whole lease on its own
-- clock.  A commit names its epoch; one of an earlier epoch fails.
CREATE TABLE sg_lease (
    id smallint PRIMARY KEY CHECK (id = 1),
    holder bigint NOT NULL,           -- a random number of the owning process; 0: nobody
    epoch bigint NOT NULL,
    beat bigint NOT NULL,
    lease_ms bigint NOT NULL,         -- how long the owner may be silent
    name text NOT NULL,               -- the owner for people: host and process
    process text NOT NULL,            -- the owner's process for other processes of the same machine, see process_identity.py
    address text NOT NULL             -- where the owner listens for other nodes; empty: it does not
) WITH (fillfactor = 10);

INSERT INTO sg_lease VALUES (1, 0, 0, 0, 0, '', '', '');

-- The servers of a cluster, for people to see.  Which of them owns the jobs is in sg_lease.
CREATE TABLE sg_node (
    id bigint PRIMARY KEY,            -- as sg_lease.holder
    name text NOT NULL,
    address text NOT NULL,
    version text NOT NULL,
    is_owner bigint NOT NULL,
    beat bigint NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE sg_function (
    id integer PRIMARY KEY,
    name bytea NOT NULL UNIQUE,
    paused smallint,                  -- these are NULL until somebody sets one of them
    limit_high bigint,
    limit_normal bigint,
    limit_low bigint,
    policy bytea                      -- policy.Policy as a msgpack map; NULL: no limits
);

-- Unfinished jobs only: few rows, found by id, deleted when the job ends.
CREATE TABLE sg_job (
    id bigint PRIMARY KEY,
    function_id integer NOT NULL,
    state smallint NOT NULL,          -- model.JobState: below 4 unfinished, 4 done, above 4 finished otherwise
    priority smallint NOT NULL,
    delivery smallint NOT NULL,
    created_us bigint NOT NULL,
    run_at_us bigint NOT NULL,
    finished_us bigint NOT NULL,      -- 0 while unfinished
    attempts integer NOT NULL,
    result_code integer NOT NULL,
    revision integer NOT NULL,
    unique_key bytea NOT NULL,
    name bytea NOT NULL,
    extra bytea NOT NULL,             -- the rarer fields as a msgpack array, empty when all are default
    moves bytea NOT NULL,             -- a msgpack array: cause, time, cause, time ...
    result bytea,                     -- NULL: result and error are in sg_long
    error bytea,                      -- NULL: there is none, which is not the same as an empty one
    keep_until_us bigint NOT NULL,    -- when the job is to be forgotten; 0: as the server's settings say
    unique_until_us bigint NOT NULL,  -- until when the job holds its unique key after its end; 0: not beyond its end
    payload bytea                     -- NULL: long, and therefore in sg_long
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX sg_job_named ON sg_job (name) WHERE name <> '';

-- The history.
CREATE TABLE sg_done (
    LIKE sg_job INCLUDING DEFAULTS,
    PRIMARY KEY (id)
);

CREATE INDEX sg_done_named ON sg_done (name) WHERE name <> '';
CREATE INDEX sg_done_unsuccessful ON sg_done (id, state) WHERE state > 4;
CREATE INDEX sg_done_finished ON sg_done (finished_us, id) WHERE keep_until_us = 0;
CREATE INDEX sg_done_keep_until ON sg_done (keep_until_us) WHERE keep_until_us > 0;
CREATE INDEX sg_done_key_held ON sg_done (unique_until_us) WHERE unique_until_us > 0;

-- Long payloads, results and errors, in pieces: a row that moves to the history does not copy them.
CREATE TABLE sg_long (
    id bigint NOT NULL,
    kind smallint NOT NULL,           -- 0 payload, 1 result, 2 error
    piece integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (id, kind, piece)
);

ALTER TABLE sg_long ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE sg_schedule (
    name bytea PRIMARY KEY,
    fields bytea NOT NULL             -- the columns of the SQLite store as a msgpack array
);
