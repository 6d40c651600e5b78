-- name: put_runs
-- The rows come as one JSON array of arrays, so that a batch of any size is one statement.
INSERT INTO joblog_runs ($columns)
SELECT
    CAST(staged.value ->> 1 AS bigint),
    CAST(staged.value ->> 2 AS bigint),
    CAST(staged.value ->> 3 AS bigint),
    CASE
        WHEN CAST(staged.value ->> 2 AS bigint) > 0 THEN CAST(staged.value ->> 2 AS bigint)
        ELSE CAST(staged.value ->> 3 AS bigint)
    END,
    CAST(staged.value ->> 4 AS bigint),
    CAST(staged.value ->> 5 AS bigint),
    'server',
    staged.value ->> 6,
    staged.value ->> 7,
    staged.value ->> 8,
    CAST(:prefix AS text) || (staged.value ->> 0),
    '',
    :host,
    :process,
    staged.value ->> 9,
    staged.value ->> 10,
    staged.value ->> 11,
    staged.value ->> 12,
    staged.value ->> 13,
    staged.value ->> 14,
    staged.value ->> 15,
    staged.value ->> 16
FROM jsonb_array_elements(CAST(:rows AS jsonb)) AS staged (value)
ON CONFLICT (handle, submitted_us, host, run) DO UPDATE SET
    started_us = excluded.started_us,
    ended_us = excluded.ended_us,
    at_us = excluded.at_us,
    attempts = excluded.attempts,
    result_code = excluded.result_code,
    state = excluded.state,
    process = excluded.process,
    protocol = coalesce(nullif(excluded.protocol, ''), joblog_runs.protocol),
    error = excluded.error,
    result = excluded.result,
    worker = coalesce(nullif(excluded.worker, ''), joblog_runs.worker),
    worker_host = CASE WHEN excluded.worker = '' THEN joblog_runs.worker_host ELSE excluded.worker_host END,
    starts = CASE
        WHEN excluded.starts = '' THEN joblog_runs.starts
        ELSE right(joblog_runs.starts || excluded.starts, 16384)
    END

-- name: newest_open
-- The one that a result given by name belongs to: rather of this thread, rather of this host, rather the last.  One that
-- another is ending at this moment is left to it.
SELECT handle, host, run FROM joblog_runs
WHERE
    ended_us = 0 AND source = 'worker'
    AND handle = :handle AND function = :function AND unique_key = :unique_key
ORDER BY (process = :process) DESC, (host = :host) DESC, id DESC
LIMIT 1
FOR UPDATE SKIP LOCKED

-- name: drop
-- Several servers may be at it at once.
DELETE FROM joblog_runs WHERE id IN (
    SELECT id FROM joblog_runs WHERE at_us < :before_us ORDER BY at_us LIMIT :limit FOR UPDATE SKIP LOCKED
)

-- name: summary
-- A percentile is the least duration that so many per cent of the runs do not exceed.
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
    percentile_disc(0.50) WITHIN GROUP (ORDER BY took_us),
    percentile_disc(0.99) WITHIN GROUP (ORDER BY took_us)
FROM (
    SELECT
        function,
        state,
        ended_us,
        at_us,
        CASE WHEN started_us > 0 AND ended_us > 0 THEN greatest(0, ended_us - started_us) END AS took_us
    FROM joblog_runs $where
) AS chosen
GROUP BY function
