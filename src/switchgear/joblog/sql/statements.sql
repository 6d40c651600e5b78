-- The statements that every database understands, each under its name.  `$columns` stands for the columns of a run after
-- its id, `$where` for the conditions of a search, a word after a colon for a value.

-- name: start_task
-- Starting the same task again is another attempt.
INSERT INTO joblog_runs ($columns)
VALUES (
    0, :at_us, 0, :at_us, 1, 0, 'worker', 'running', :function, :unique_key, :handle, :run, :host, :process, '', '', '', '',
    '', '', '', ''
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
    '', '', :error, :result, '', '', '', ''
)
ON CONFLICT (handle, submitted_us, host, run) DO UPDATE SET
    ended_us = excluded.ended_us,
    result_code = excluded.result_code,
    state = excluded.state,
    error = excluded.error,
    result = excluded.result

-- name: find
SELECT id, $columns FROM joblog_runs $where ORDER BY id DESC LIMIT :limit

-- name: first_since
SELECT id FROM joblog_runs WHERE at_us >= :since_us ORDER BY at_us LIMIT 1

-- name: last_until
SELECT id FROM joblog_runs WHERE at_us < :until_us ORDER BY at_us DESC LIMIT 1

-- name: oldest_to_keep
-- The log is to keep as many as the parameter says; this is the time of the first one beyond, which goes.
SELECT at_us FROM joblog_runs ORDER BY at_us DESC LIMIT 1 OFFSET :keep_count

-- name: put_audit
INSERT INTO joblog_audit (at_us, identity, protocol, address, verb, target, outcome, host)
VALUES (:at_us, :identity, :protocol, :address, :verb, :target, :outcome, :host)

-- name: find_audit
SELECT id, at_us, identity, protocol, address, verb, target, outcome, host
FROM joblog_audit
WHERE id < :before_id AND at_us >= :since_us AND at_us < :until_us
ORDER BY id DESC LIMIT :limit

-- name: oldest_audit_to_keep
SELECT at_us FROM joblog_audit ORDER BY at_us DESC LIMIT 1 OFFSET :keep_count

-- name: drop_audit
DELETE FROM joblog_audit WHERE id IN (
    SELECT id FROM joblog_audit WHERE at_us < :before_us ORDER BY at_us LIMIT :limit
)
