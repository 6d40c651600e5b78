-- Version 1 of the layout: see ../sqlite/001_runs.sql for what the columns mean.

CREATE TABLE joblog_runs (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    submitted_us BIGINT NOT NULL,
    started_us BIGINT NOT NULL,
    ended_us BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    result_code BIGINT NOT NULL,
    source TEXT NOT NULL,
    state TEXT NOT NULL,
    function TEXT NOT NULL,
    unique_key TEXT NOT NULL,
    handle TEXT NOT NULL,
    run TEXT NOT NULL,
    host TEXT NOT NULL,
    process TEXT NOT NULL,
    origin TEXT NOT NULL,
    protocol TEXT NOT NULL,
    error TEXT NOT NULL,
    result TEXT NOT NULL
);

CREATE UNIQUE INDEX joblog_runs_identity ON joblog_runs (handle, submitted_us, host, run);

CREATE INDEX joblog_runs_time ON joblog_runs (at_us);

CREATE INDEX joblog_runs_unfinished ON joblog_runs (id) WHERE ended_us = 0;
CREATE INDEX joblog_runs_failed ON joblog_runs (id) WHERE state = 'failed';

-- For people with psql.
CREATE VIEW joblog AS
SELECT
    id,
    function,
    unique_key,
    state,
    to_timestamp(nullif(submitted_us, 0) / 1e6) AS submitted,
    to_timestamp(nullif(started_us, 0) / 1e6) AS started,
    to_timestamp(nullif(ended_us, 0) / 1e6) AS ended,
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
