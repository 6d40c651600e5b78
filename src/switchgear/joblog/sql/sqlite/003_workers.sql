-- Version 3 of the layout: who ran a job, and its trace.  (Version 2 is another change.)

ALTER TABLE joblog_runs ADD COLUMN worker TEXT NOT NULL DEFAULT '';       -- the worker of the last attempt, by its name
ALTER TABLE joblog_runs ADD COLUMN worker_host TEXT NOT NULL DEFAULT '';  -- and the address that it came from
-- One line for each start: microseconds since the epoch, protocol, worker and its address, separated by tabs.
ALTER TABLE joblog_runs ADD COLUMN starts TEXT NOT NULL DEFAULT '';
ALTER TABLE joblog_runs ADD COLUMN trace TEXT NOT NULL DEFAULT '';        -- the traceparent of its submitter's span

DROP VIEW joblog;

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
    protocol,
    worker,
    worker_host,
    trace
FROM joblog_runs;
