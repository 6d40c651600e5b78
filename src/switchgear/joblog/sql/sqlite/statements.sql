-- `$rows` stands for as many rows of placeholders as a batch has.

-- name: put_runs
-- Rows of the job 0 only fill up the statement.
WITH server (prefix, host, process) AS (VALUES (?, ?, ?)),
staged (
    job, submitted_us, started_us, ended_us, attempts, result_code, state, function, unique_key, origin, protocol, error,
    message, worker, worker_host, starts, trace
) AS (VALUES $rows)
INSERT INTO joblog_runs ($columns)
SELECT
    submitted_us, started_us, ended_us, CASE WHEN started_us > 0 THEN started_us ELSE ended_us END, attempts,
    result_code, 'server', state, function, unique_key, prefix || job, '', host, process, origin, protocol, error,
    message, worker, worker_host, starts, trace
FROM staged, server
WHERE job > 0
ON CONFLICT (handle, submitted_us, host, run) DO UPDATE SET
    started_us = excluded.started_us,
    ended_us = excluded.ended_us,
    at_us = excluded.at_us,
    attempts = excluded.attempts,
    result_code = excluded.result_code,
    state = excluded.state,
    process = excluded.process,
    protocol = coalesce(nullif(excluded.protocol, ''), protocol),
    error = excluded.error,
    result = excluded.result,
    worker = coalesce(nullif(excluded.worker, ''), worker),
    worker_host = CASE WHEN excluded.worker = '' THEN worker_host ELSE excluded.worker_host END,
    starts = CASE WHEN excluded.starts = '' THEN starts ELSE substr(starts || excluded.starts, -16384) END

-- name: newest_open
-- The one that a result given by name belongs to: rather of this thread, rather of this host, rather the last.
SELECT handle, host, run FROM joblog_runs
WHERE
    ended_us = 0 AND source = 'worker'
    AND handle = :handle AND function = :function AND unique_key = :unique_key
ORDER BY (process = :process) DESC, (host = :host) DESC, id DESC
LIMIT 1

-- name: drop
DELETE FROM joblog_runs WHERE id IN (
    SELECT id FROM joblog_runs WHERE at_us < :before_us ORDER BY at_us LIMIT :limit
)

-- name: summary
-- A percentile is the least duration that so many per cent of the runs do not exceed.  `percentiles` is a function of
-- our own (see sqlite.py), and called once.
SELECT
    function,
    count(*),
    count(CASE WHEN state = 'done' THEN 1 END),
    count(CASE WHEN state = 'failed' THEN 1 END),
    count(CASE WHEN ended_us = 0 THEN 1 END),
    min(at_us),
    max(at_us),
    CAST(avg(took_us) AS double precision),
    max(took_us),
    json_extract(percentiles(took_us), '$[0]'),
    json_extract(percentiles(took_us), '$[1]')
FROM (
    SELECT
        function,
        state,
        ended_us,
        at_us,
        CASE WHEN started_us > 0 AND ended_us > 0 THEN max(0, ended_us - started_us) END AS took_us
    FROM joblog_runs $where
) AS chosen
GROUP BY function
