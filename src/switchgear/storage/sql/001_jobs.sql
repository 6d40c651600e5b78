-- Version 1 of the layout.  A migration that has been released is never edited: the next change is the next file.

PRAGMA application_id = 0x53574752;  -- "SWGR", so that another program's database is not taken for ours

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE functions (
    id INTEGER PRIMARY KEY,
    name BLOB NOT NULL UNIQUE,
    paused INTEGER,                   -- these four are NULL until somebody sets one of them:
    limit_high INTEGER,               -- until then the server's configuration holds
    limit_normal INTEGER,
    limit_low INTEGER
);

-- Numbers first and the long columns last: reading a row's head then never touches the pages its tail spills to.
-- Where it can be, an absent value is 0 or an empty blob and not NULL, which Python's sqlite3 is slow to bind.
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    function_id INTEGER NOT NULL,
    state INTEGER NOT NULL,           -- model.JobState: below 4 unfinished, 4 done, above 4 finished otherwise
    priority INTEGER NOT NULL,
    delivery INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    run_at_us INTEGER NOT NULL,
    finished_us INTEGER NOT NULL,     -- 0 while unfinished
    attempts INTEGER NOT NULL,
    result_code INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    unique_key BLOB NOT NULL,
    name BLOB NOT NULL,
    extra BLOB NOT NULL,              -- the rarer fields as a msgpack array, empty when all are default
    moves BLOB NOT NULL,              -- a msgpack array: cause, time, cause, time ...
    result BLOB NOT NULL,
    error BLOB,                       -- NULL: nothing was said, which is not the same as nothing said
    payload BLOB                      -- NULL: long, and therefore in `payloads`
);

-- A changed row is written anew as a whole, so a long payload lives beside it and is written once.
CREATE TABLE payloads (
    id INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);

-- Starting up reads the unfinished jobs, and must not wade through the finished ones.
CREATE INDEX jobs_unfinished ON jobs (id) WHERE state < 4;

-- Dropping the oldest of the history.
CREATE INDEX jobs_finished ON jobs (finished_us) WHERE state >= 4;

-- The few that people look for, and that successors must not wait for in ignorance.
CREATE INDEX jobs_unsuccessful ON jobs (id, state) WHERE state > 4;

CREATE INDEX jobs_named ON jobs (name) WHERE name <> x'';

-- There is no index on unique_key: the keys are random (most clients make a UUID), so that each inserted job would
-- dirty a page of its own, and a batch of a thousand took four times as long.  Nor on function_id (a fifth longer).
