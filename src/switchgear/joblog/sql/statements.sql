-- The statements that every database understands, each under its name.  `$columns` stands for the columns of a run after
-- its id, `$where` for the conditions of a search, a word after a colon for a value.

-- name: start_task
-- Starting the same task again is another attempt.
INSERT INTO joblog_runs ($columns)
VALUES (
    0, :at_us, 0, :at_us, 1, 0, 'worker', 'running', :function, :unique_key, :handle, :run, :host, :process, '', '', '', ''
)
ON CONFLICT (handle, submitted_us, host, run) DO UPDATE SET
    started_us = excluded.started_us,
    ended_us = 0,
    at_us = excluded.at_us,
    attempts = joblog_runs.attempts + 1,
    result_code = 0,
    state = excluded.state,
    process = excluded.process,
    error = '',
    result = ''

-- name: end_task
-- Without a start, which the database may have missed, the end is still worth having.
INSERT INTO joblog_runs ($columns)
VALUES (
    0, 0, :at_us, :at_us, 1, :result_code, 'worker', :state, :function, :unique_key, :handle, :run, :host, :process,
    '', '', :error, :result
)
ON CONFLICT (handle, submitted_us, host, run) DO UPDATE SET
    ended_us = excluded.ended_us,
    result_code = excluded.result_code,
    state = excluded.state,
    error = excluded.error,
    result = excluded.result

-- name: find
SELECT id, $columns FROM joblog_runs $where ORDER BY id DESC LIMIT :limit

-- name: summary
-- A percentile is the least duration that so many per cent of the runs do not exceed.
WITH chosen AS (
    SELECT function, state, started_us, ended_us, at_us FROM joblog_runs $where
),
timed AS (
    SELECT function, CASE WHEN ended_us > started_us THEN ended_us - started_us ELSE 0 END AS took_us
    FROM chosen
    WHERE started_us > 0 AND ended_us > 0
),
ranked AS (
    SELECT
        function,
        took_us,
        row_number() OVER (PARTITION BY function ORDER BY took_us) AS place,
        count(*) OVER (PARTITION BY function) AS places
    FROM timed
),
durations AS (
    SELECT
        function,
        CAST(avg(took_us) AS double precision) AS mean_us,
        max(CASE WHEN place = (places * 50 + 99) / 100 THEN took_us END) AS p50_us,
        max(CASE WHEN place = (places * 99 + 99) / 100 THEN took_us END) AS p99_us,
        max(took_us) AS longest_us
    FROM ranked
    GROUP BY function
),
counts AS (
    SELECT
        function,
        count(*) AS runs,
        count(CASE WHEN state = 'done' THEN 1 END) AS ok,
        count(CASE WHEN state = 'failed' THEN 1 END) AS failed,
        count(CASE WHEN ended_us = 0 THEN 1 END) AS unfinished,
        min(at_us) AS first_us,
        max(at_us) AS last_us
    FROM chosen
    GROUP BY function
)
SELECT
    counts.function, runs, ok, failed, unfinished, mean_us, p50_us, p99_us, longest_us, first_us, last_us
FROM counts
LEFT JOIN durations ON durations.function = counts.function

-- name: oldest_to_keep
-- The log is to keep as many as the parameter says; this is the time of the first one beyond, which goes.
SELECT at_us FROM joblog_runs ORDER BY at_us DESC LIMIT 1 OFFSET :keep_count
