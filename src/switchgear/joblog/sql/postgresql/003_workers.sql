-- Version 3 of the layout: see ../sqlite/003_workers.sql for what the columns mean.

ALTER TABLE joblog_runs ADD COLUMN worker TEXT NOT NULL DEFAULT '';
ALTER TABLE joblog_runs ADD COLUMN worker_host TEXT NOT NULL DEFAULT '';
ALTER TABLE joblog_runs ADD COLUMN starts TEXT NOT NULL DEFAULT '';
ALTER TABLE joblog_runs ADD COLUMN trace TEXT NOT NULL DEFAULT '';

DROP VIEW joblog;

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
    protocol,
    worker,
    worker_host,
    trace
FROM joblog_runs;
