-- Version 1 of the layout.  A migration that has been released is never edited: the next change is the next file.

-- One row for each run: a job from its submission to its end with all its attempts, or a task that a worker registered.
-- Times are microseconds since the epoch, and 0 where there is none.
CREATE TABLE joblog_runs (
    id INTEGER PRIMARY KEY,           -- in the order in which runs were first heard of; pages go by it
    submitted_us INTEGER NOT NULL,    -- 0: a task, which nobody submitted
    started_us INTEGER NOT NULL,      -- of the last attempt
    ended_us INTEGER NOT NULL,
    at_us INTEGER NOT NULL,           -- the start, or the end of what never started: by this a run is found and dropped
    attempts INTEGER NOT NULL,
    result_code INTEGER NOT NULL,
    source TEXT NOT NULL,             -- 'server' or 'worker': who wrote the row
    state TEXT NOT NULL,              -- as in model.JobState, in small letters
    function TEXT NOT NULL,
    unique_key TEXT NOT NULL,
    handle TEXT NOT NULL,
    run TEXT NOT NULL,                -- tells the runs of tasks apart, which have no submission to tell them by
    host TEXT NOT NULL,
    process TEXT NOT NULL,            -- of the server, or of the worker with its thread
    origin TEXT NOT NULL,             -- who submitted it, if the protocol says so
    protocol TEXT NOT NULL,           -- what its worker speaks
    error TEXT NOT NULL,
    result TEXT NOT NULL
);

-- What a run is known by.  Handles come first so that one can be looked up, and because they grow with time, so that
-- new rows go to the same few pages.
CREATE UNIQUE INDEX joblog_runs_identity ON joblog_runs (handle, submitted_us, host, run);

CREATE INDEX joblog_runs_time ON joblog_runs (at_us);

-- The few that people look for.
CREATE INDEX joblog_runs_unfinished ON joblog_runs (id) WHERE ended_us = 0;
CREATE INDEX joblog_runs_failed ON joblog_runs (id) WHERE state = 'failed';

-- For people with the sqlite3 shell.
CREATE VIEW joblog AS
SELECT
    id,
    function,
    unique_key,
    state,
    strftime('%Y-%m-%d %H:%M:%f', nullif(submitted_us, 0) / 1e6, 'unixepoch') AS submitted,
    strftime('%Y-%m-%d %H:%M:%f', nullif(started_us, 0) / 1e6, 'unixepoch') AS started,
    strftime('%Y-%m-%d %H:%M:%f', nullif(ended_us, 0) / 1e6, 'unixepoch') AS ended,
    (nullif(ended_us, 0) - nullif(started_us, 0)) / 1e6 AS seconds,
    attempts,
    result_code,
    error,
    result,
    handle,
    host,
    process,
    source,
    origin,
    protocol
FROM joblog_runs;
