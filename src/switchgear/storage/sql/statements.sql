-- Every statement but those of the migrations, each under its name.  `$columns` stands for the columns of a job's row
-- without its payload, `$rows` for as many rows of placeholders as a batch has, `$where` for the conditions of a search.

-- name: put_jobs
-- Rows with the id 0 only fill up the statement.  An error of 0 is one that is not there: see sqlite_rows.py.
-- What a job was submitted with never changes, so an update leaves those columns alone, and above all the payload.
WITH staged ($columns, payload) AS (VALUES $rows)
INSERT INTO jobs ($columns, payload)
SELECT
    id, function_id, state, priority, delivery, created_us, run_at_us, finished_us, attempts, result_code, revision,
    unique_key, name, extra, moves, result, nullif(error, 0), keep_until_us, unique_until_us, payload
FROM staged WHERE id > 0
ON CONFLICT (id) DO UPDATE SET
    state = excluded.state,
    priority = excluded.priority,
    delivery = excluded.delivery,
    run_at_us = excluded.run_at_us,
    finished_us = excluded.finished_us,
    attempts = excluded.attempts,
    result_code = excluded.result_code,
    revision = excluded.revision,
    unique_key = excluded.unique_key,
    extra = excluded.extra,
    moves = excluded.moves,
    result = excluded.result,
    error = excluded.error,
    keep_until_us = excluded.keep_until_us,
    unique_until_us = excluded.unique_until_us
WHERE excluded.revision > jobs.revision

-- name: put_payload
INSERT OR IGNORE INTO payloads (id, payload) VALUES (?, ?)

-- name: put_long_payload
INSERT OR IGNORE INTO payloads (id, payload) VALUES (?, zeroblob(?))

-- name: make_room_for_result
UPDATE jobs SET result = zeroblob(?) WHERE id = ?

-- name: make_room_for_error
UPDATE jobs SET error = zeroblob(?) WHERE id = ?

-- name: put_function
INSERT INTO functions (id, name, paused, limit_high, limit_normal, limit_low, policy) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    paused = excluded.paused,
    limit_high = excluded.limit_high,
    limit_normal = excluded.limit_normal,
    limit_low = excluded.limit_low,
    policy = excluded.policy

-- name: put_next_job_id
INSERT INTO meta (key, value) VALUES ('next_job_id', ?)
ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)

-- name: revisions
SELECT id, revision FROM jobs WHERE id IN (SELECT value FROM json_each(?))

-- name: functions
SELECT id, name, paused, limit_high, limit_normal, limit_low, policy FROM functions

-- name: next_job_id
SELECT max(
    coalesce((SELECT value FROM meta WHERE key = 'next_job_id'), 1),
    coalesce((SELECT max(id) FROM jobs), 0) + 1
)

-- name: unfinished_with_payloads
SELECT $columns, coalesce(payload, (SELECT long.payload FROM payloads AS long WHERE long.id = jobs.id), x'')
FROM jobs INDEXED BY jobs_unfinished
WHERE state < 4 $which
ORDER BY id

-- name: unfinished_after
SELECT $columns, NULL
FROM jobs INDEXED BY jobs_unfinished
WHERE state < 4 AND id > ? $which
ORDER BY id

-- name: is_plain
-- Ready, not changed since it was first kept, and nothing but what every job has; a number that cannot be is not plain.
state = 2 AND revision = 1 AND attempts = 0 AND delivery IN (1, 2) AND priority IN (0, 1, 2, 3) AND run_at_us = 0 AND unique_until_us = 0 AND name = x''
    AND extra = x'' AND moves = x'' AND result = x'' AND result_code = 0 AND error IS NULL

-- name: unfinished_plain
SELECT id, function_id, priority, delivery, created_us, unique_key
FROM jobs INDEXED BY jobs_unfinished
WHERE state < 4 AND $is_plain
ORDER BY id

-- name: holding_their_key
SELECT $columns, NULL
FROM jobs INDEXED BY jobs_key_held
WHERE state >= 4 AND unique_until_us > 0 AND unique_until_us > ?
ORDER BY id

-- name: unsuccessful
SELECT id, state, name
FROM jobs INDEXED BY jobs_unsuccessful
WHERE state > 4
ORDER BY id DESC
LIMIT ?

-- name: unsuccessful_among
SELECT id, state, name
FROM jobs
WHERE state > 4 AND id IN (SELECT value FROM json_each(?))
ORDER BY id

-- name: states
SELECT id, state
FROM jobs
WHERE id IN (SELECT value FROM json_each(?))

-- name: payloads
SELECT id, coalesce(payload, (SELECT long.payload FROM payloads AS long WHERE long.id = jobs.id), x'')
FROM jobs
WHERE id IN (SELECT value FROM json_each(?))

-- name: payloads_together
SELECT group_concat(id), group_concat(length(payload)), CAST(group_concat(CAST(payload AS TEXT), '') AS BLOB)
FROM (
    SELECT
        id,
        coalesce(payload, (SELECT long.payload FROM payloads AS long WHERE long.id = jobs.id), x'') AS payload
    FROM jobs
    WHERE id IN (SELECT value FROM json_each(?))
)

-- name: jobs
SELECT $columns, coalesce(payload, (SELECT long.payload FROM payloads AS long WHERE long.id = jobs.id), x'')
FROM jobs
WHERE id IN (SELECT value FROM json_each(?))

-- name: find_named
SELECT $columns, NULL
FROM jobs INDEXED BY jobs_named
WHERE name = ? AND name <> x'' AND created_us >= ?
ORDER BY id DESC
LIMIT 1

-- name: find
-- Without results: a thousand of them may not fit into memory.
SELECT $listed, NULL FROM jobs $where ORDER BY id DESC LIMIT ?

-- name: contains
-- A text is in the job. `length` does not read a long payload, `instr` would.
(instr(unique_key, ?) > 0 OR instr(name, ?) > 0 OR instr(error, ?) > 0 OR instr(payload, ?) > 0
    OR (payload IS NULL AND EXISTS (
        SELECT 1 FROM payloads WHERE payloads.id = jobs.id
            AND CASE WHEN length(payloads.payload) <= ? THEN instr(payloads.payload, ?) > 0 ELSE 0 END)))

-- name: window
SELECT id FROM jobs WHERE id < ? ORDER BY id DESC LIMIT 1 OFFSET ?

-- name: unsuccessful_window
SELECT id FROM jobs INDEXED BY jobs_unsuccessful WHERE state > 4 AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?

-- name: unfinished_window
SELECT id FROM jobs INDEXED BY jobs_unfinished WHERE state < 4 AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?

-- name: count_unfinished
SELECT count(*) FROM jobs INDEXED BY jobs_unfinished WHERE state < 4

-- name: count_all
SELECT count(*) FROM jobs

-- name: newest_to_drop
-- The history is to keep as many as the parameter says; this is the first one beyond.
SELECT finished_us, id
FROM jobs INDEXED BY jobs_finished
WHERE state >= 4 AND keep_until_us = 0
ORDER BY finished_us DESC, id DESC
LIMIT 1 OFFSET ?

-- name: old_ids
SELECT id FROM jobs INDEXED BY jobs_finished
WHERE state >= 4 AND keep_until_us = 0 AND (finished_us, id) < (:finished_us, :id)
    AND unique_until_us <= :now_us AND id NOT IN (SELECT value FROM json_each(:spare))
ORDER BY finished_us, id LIMIT :limit

-- name: ids_kept_long_enough
SELECT id FROM jobs INDEXED BY jobs_keep_until
WHERE state >= 4 AND keep_until_us > 0 AND keep_until_us <= :now_us
    AND unique_until_us <= :now_us AND id NOT IN (SELECT value FROM json_each(:spare))
ORDER BY keep_until_us LIMIT :limit

-- name: drop_payloads
DELETE FROM payloads WHERE id IN ($ids)

-- name: drop_jobs
DELETE FROM jobs WHERE id IN ($ids)

-- name: put_schedule
INSERT OR REPLACE INTO schedules (
    name, function, spec, timezone, catch_up, overlap, paused, reached_us, last_us, last_job_id,
    fired, skipped, missed, refused, options, payload
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_schedule
DELETE FROM schedules WHERE name = ?

-- name: schedules
SELECT
    name, function, spec, timezone, catch_up, overlap, paused, reached_us, last_us, last_job_id,
    fired, skipped, missed, refused, options, payload
FROM schedules
ORDER BY name
