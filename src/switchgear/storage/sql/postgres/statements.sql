-- Every statement but those of the migrations, each under its name.  `$columns` stands for the columns of a job's row
-- without its payload, `$arrays` for one array for each column, `$is_plain` for the condition of that name.

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: impatient
SELECT set_config('lock_timeout', '300ms', true)

-- name: terminate_others
-- Every session that has locked the lease, or waits to: of a server that is frozen in the middle of a commit, or of a
-- connection that this server has given up.
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'relation' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND relation = 'sg_lease'::regclass AND mode IN ('RowShareLock', 'RowExclusiveLock') AND pid <> pg_backend_pid()

-- name: terminate_frozen_holder
-- Every session that has locked the lease and waits for its client in the middle of a transaction.  Not those that wait
-- for the lock, or are busy: other servers take the lease too, and would end each other's attempts without end.
SELECT pg_terminate_backend(lock.pid)
FROM pg_locks AS lock JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
WHERE lock.locktype = 'relation' AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND lock.relation = 'sg_lease'::regclass AND lock.mode IN ('RowShareLock', 'RowExclusiveLock')
    AND lock.pid <> pg_backend_pid()
    AND activity.wait_event_type = 'Client' AND activity.xact_start < clock_timestamp() - interval '300 milliseconds'

-- name: lease
SELECT holder, epoch, beat + coalesce((SELECT value FROM sg_meta WHERE key = 'beat'), 0), lease_ms, name, process, address
FROM sg_lease WHERE id = 1

-- name: fence
-- Division by zero, which aborts the transaction, unless this server still owns the jobs.  The row is locked and not
-- updated: while another session holds a snapshot, each commit would have to pass all earlier versions of the row.
WITH held AS (
    SELECT 1 FROM sg_lease WHERE id = 1 AND holder = $1::bigint AND epoch = $2::bigint FOR UPDATE
)
SELECT 1 / count(*) FROM held

-- name: beat
INSERT INTO sg_meta (key, value) VALUES ('beat', 1) ON CONFLICT (key) DO UPDATE SET value = sg_meta.value + 1

-- name: lock_lease
-- In a statement of its own: the next one sees the beats that were committed while this one waited.
SELECT 1 FROM sg_lease WHERE id = 1 FOR UPDATE

-- name: renew
-- After this no transaction that was begun before, on another connection, can commit.
UPDATE sg_lease SET epoch = epoch + 1, beat = beat + 1 WHERE id = 1 AND holder = $1::bigint RETURNING epoch

-- name: take
UPDATE sg_lease
SET holder = $1::bigint, epoch = epoch + 1, beat = beat + 1, lease_ms = $4::bigint,
    name = $5::text, process = $6::text, address = $7::text
WHERE id = 1 AND epoch = $2::bigint AND beat + coalesce((SELECT value FROM sg_meta WHERE key = 'beat'), 0) = $3::bigint
    AND NOT EXISTS (SELECT FROM sg_node WHERE epoch > 0)  -- nodes that own partitions
RETURNING epoch

-- name: release
UPDATE sg_lease SET holder = 0, epoch = epoch + 1, beat = beat + 1, address = '' WHERE id = 1 AND holder = $1::bigint

-- name: new_plain
WITH put AS (
    INSERT INTO sg_job ($columns, payload)
    SELECT e.id, e.function_id, 2, e.priority, e.delivery, e.created_us, 0, 0, 0, 0, 1, e.unique_key, '', '', '', '', NULL, 0, 0, e.payload
    FROM unnest($1::bigint[], $2::integer[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bytea[], $7::bytea[])
        AS e (id, function_id, priority, delivery, created_us, unique_key, payload)
    WHERE NOT EXISTS (SELECT FROM sg_done WHERE sg_done.id = e.id)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT 1 / (count(*) = $8::bigint)::integer FROM put

-- name: new_unfinished
WITH put AS (
    INSERT INTO sg_job ($columns, payload)
    SELECT * FROM unnest($arrays) AS e ($columns, payload)
    WHERE NOT EXISTS (SELECT FROM sg_done WHERE sg_done.id = e.id)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT 1 / (count(*) = $count::bigint)::integer FROM put

-- name: new_finished
WITH put AS (
    INSERT INTO sg_done ($columns, payload)
    SELECT * FROM unnest($arrays) AS e ($columns, payload)
    WHERE NOT EXISTS (SELECT FROM sg_job WHERE sg_job.id = e.id)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT 1 / (count(*) = $count::bigint)::integer FROM put

-- name: started
WITH put AS (
    UPDATE sg_job AS job
    SET state = 3, attempts = e.attempts, revision = e.revision, moves = e.moves, priority = e.priority,
        delivery = e.delivery, unique_key = e.unique_key, extra = '', run_at_us = 0, result_code = 0, result = '',
        error = NULL, unique_until_us = 0
    FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::bytea[], $5::smallint[], $6::smallint[], $7::bytea[])
        AS e (id, attempts, revision, moves, priority, delivery, unique_key)
    WHERE job.id = e.id AND job.revision < e.revision
    RETURNING 1
)
SELECT 1 / (count(*) = $8::bigint)::integer FROM put

-- name: done
WITH gone AS (
    DELETE FROM sg_job AS job
    USING unnest(
        $1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::bytea[], $6::bytea[], $7::smallint[], $8::smallint[],
        $9::bytea[]
    ) AS e (id, finished_us, attempts, revision, moves, result, priority, delivery, unique_key)
    WHERE job.id = e.id AND job.revision < e.revision
    RETURNING job.id, job.function_id, job.created_us, job.name, job.payload, e.finished_us, e.attempts, e.revision,
        e.moves, e.result, e.priority, e.delivery, e.unique_key
), put AS (
    INSERT INTO sg_done ($columns, payload)
    SELECT id, function_id, 4, priority, delivery, created_us, 0, finished_us, attempts, 0, revision, unique_key, name, '', moves,
        result, NULL, 0, 0, payload
    FROM gone
    RETURNING 1
)
SELECT 1 / (count(*) = $10::bigint)::integer FROM put

-- name: changed
WITH put AS (
    UPDATE sg_job AS job
    SET $changes
    FROM unnest($arrays) AS e ($columns, payload)
    WHERE job.id = e.id AND job.revision < e.revision
    RETURNING 1
)
SELECT 1 / (count(*) = $count::bigint)::integer FROM put

-- name: changed_finished
WITH put AS (
    UPDATE sg_done AS job
    SET $changes
    FROM unnest($arrays) AS e ($columns, payload)
    WHERE job.id = e.id AND job.revision < e.revision
    RETURNING 1
)
SELECT 1 / (count(*) = $count::bigint)::integer FROM put

-- name: ended
WITH gone AS (
    DELETE FROM sg_job AS job
    USING unnest($arrays) AS e ($columns, payload)
    WHERE job.id = e.id AND job.revision < e.revision
    RETURNING $moved, job.payload AS payload
), put AS (
    INSERT INTO sg_done ($columns, payload) SELECT $columns, payload FROM gone RETURNING 1
)
SELECT 1 / (count(*) = $count::bigint)::integer FROM put

-- name: retried
WITH gone AS (
    DELETE FROM sg_done AS job
    USING unnest($arrays) AS e ($columns, payload)
    WHERE job.id = e.id AND job.revision < e.revision
    RETURNING $moved, job.payload AS payload
), put AS (
    INSERT INTO sg_job ($columns, payload) SELECT $columns, payload FROM gone RETURNING 1
)
SELECT 1 / (count(*) = $count::bigint)::integer FROM put

-- name: revisions
SELECT id, revision, 0::smallint FROM sg_job WHERE id = ANY($1::bigint[])
UNION ALL
SELECT id, revision, 1::smallint FROM sg_done WHERE id = ANY($1::bigint[])

-- name: withdraw
DELETE FROM sg_job WHERE id = ANY($1::bigint[])

-- name: drop_long
DELETE FROM sg_long WHERE id = $1::bigint AND kind = $2::smallint

-- name: put_long
INSERT INTO sg_long (id, kind, piece, content) VALUES ($1::bigint, $2::smallint, $3::integer, $4::bytea)

-- name: put_function
INSERT INTO sg_function (id, name, paused, limit_high, limit_normal, limit_low, policy)
VALUES ($1::integer, $2::bytea, $3::smallint, $4::bigint, $5::bigint, $6::bigint, $7::bytea)
ON CONFLICT (id) DO UPDATE SET
    paused = excluded.paused,
    limit_high = excluded.limit_high,
    limit_normal = excluded.limit_normal,
    limit_low = excluded.limit_low,
    policy = excluded.policy

-- name: put_next_job_id
INSERT INTO sg_meta (key, value) VALUES ('next_job_id', $1::bigint)
ON CONFLICT (key) DO UPDATE SET value = greatest(sg_meta.value, excluded.value)

-- name: put_schedule
INSERT INTO sg_schedule (name, fields) VALUES ($1::bytea, $2::bytea)
ON CONFLICT (name) DO UPDATE SET fields = excluded.fields

-- name: drop_schedule
DELETE FROM sg_schedule WHERE name = $1::bytea

-- name: functions
SELECT id, name, paused, limit_high, limit_normal, limit_low, policy FROM sg_function ORDER BY id

-- name: schedules
SELECT fields FROM sg_schedule ORDER BY name

-- name: next_job_id
SELECT greatest(
    coalesce((SELECT value FROM sg_meta WHERE key = 'next_job_id'), 1),
    coalesce((SELECT max(id) FROM sg_job), 0) + 1,
    coalesce((SELECT max(id) FROM sg_done), 0) + 1
)

-- name: is_plain
-- Ready, not changed since it was first stored, and nothing but what every job has; a number that cannot be is not plain.
state = 2 AND revision = 1 AND attempts = 0 AND delivery IN (1, 2) AND priority IN (0, 1, 2, 3) AND run_at_us = 0 AND unique_until_us = 0 AND name = ''
    AND extra = '' AND moves = '' AND result = '' AND result_code = 0 AND error IS NULL

-- name: unfinished
SELECT $columns, payload FROM sg_job WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint

-- name: unfinished_special
SELECT $columns, payload FROM sg_job WHERE id > $1::bigint AND ($is_plain) IS NOT TRUE ORDER BY id LIMIT $2::bigint

-- name: unfinished_plain
-- The next jobs by id; those that are not plain have no function here. The conditions are not those of the search: of
-- their rows PostgreSQL expects so few that it would rather sort the whole table for each portion. The limit is not a
-- parameter for the same reason.
SELECT id, CASE WHEN is_plain THEN function_id END, priority, delivery, created_us, unique_key FROM (
    SELECT id, function_id, priority, delivery, created_us, unique_key, ($is_plain) IS TRUE AS is_plain
    FROM sg_job WHERE id > $1::bigint ORDER BY id LIMIT 4096
) AS next

-- name: holding_their_key
SELECT $columns, NULL::bytea FROM sg_done
WHERE unique_until_us > 0 AND unique_until_us > $1::bigint AND id > $2::bigint ORDER BY id LIMIT $3::bigint

-- name: unsuccessful
SELECT id, state, name FROM sg_done WHERE state > 4 AND id < $1::bigint ORDER BY id DESC LIMIT $2::bigint

-- name: unsuccessful_among
SELECT id, state, name FROM sg_done WHERE state > 4 AND id = ANY($1::bigint[]) ORDER BY id

-- name: states
SELECT id, state FROM sg_job WHERE id = ANY($1::bigint[])
UNION ALL
SELECT id, state FROM sg_done WHERE id = ANY($1::bigint[])

-- name: payloads
SELECT id, payload FROM sg_job WHERE id = ANY($1::bigint[])
UNION ALL
SELECT id, payload FROM sg_done WHERE id = ANY($1::bigint[])

-- name: long_values
SELECT id, kind, content FROM sg_long WHERE id = ANY($1::bigint[]) AND kind = ANY($2::smallint[]) ORDER BY id, kind, piece

-- name: jobs
SELECT $columns, payload FROM sg_job WHERE id = ANY($1::bigint[])
UNION ALL
SELECT $columns, payload FROM sg_done WHERE id = ANY($1::bigint[])

-- name: jobs_without_payloads
SELECT $columns, NULL::bytea FROM sg_job WHERE id = ANY($1::bigint[])
UNION ALL
SELECT $columns, NULL::bytea FROM sg_done WHERE id = ANY($1::bigint[])

-- name: find_named
SELECT DISTINCT ON (name) name, id FROM (
    SELECT name, id FROM sg_job WHERE name = ANY($1::bytea[]) AND name <> '' AND created_us >= $2::bigint
    UNION ALL
    SELECT name, id FROM sg_done WHERE name = ANY($1::bytea[]) AND name <> '' AND created_us >= $2::bigint
) AS named
ORDER BY name, id DESC

-- name: window
SELECT greatest(
    (SELECT id FROM sg_job WHERE id < $1::bigint ORDER BY id DESC LIMIT 1 OFFSET $2::bigint),
    (SELECT id FROM sg_done WHERE id < $1::bigint ORDER BY id DESC LIMIT 1 OFFSET $2::bigint),
    0
)

-- name: unsuccessful_window
SELECT coalesce((SELECT id FROM sg_done WHERE state > 4 AND id < $1::bigint ORDER BY id DESC LIMIT 1 OFFSET $2::bigint), 0)

-- name: unfinished_window
SELECT coalesce((SELECT id FROM sg_job WHERE id < $1::bigint ORDER BY id DESC LIMIT 1 OFFSET $2::bigint), 0)

-- name: count_unfinished
SELECT count(*) FROM sg_job

-- name: count_all
SELECT (SELECT count(*) FROM sg_job) + (SELECT count(*) FROM sg_done)

-- name: newest_to_drop
-- The history is to keep as many as the parameter says; this is the first one beyond.
SELECT finished_us, id FROM sg_done WHERE keep_until_us = 0
ORDER BY finished_us DESC, id DESC LIMIT 1 OFFSET $1::bigint

-- name: drop_old
WITH old AS (
    SELECT id FROM sg_done
    WHERE keep_until_us = 0 AND (finished_us, id) < ($1::bigint, $2::bigint) AND unique_until_us <= $3::bigint
        AND id <> ALL($4::bigint[])
    ORDER BY finished_us, id LIMIT $5::bigint
), gone AS (
    DELETE FROM sg_done USING old WHERE sg_done.id = old.id RETURNING sg_done.id
), without_long AS (
    DELETE FROM sg_long USING old WHERE sg_long.id = old.id
)
SELECT count(*) FROM gone

-- name: drop_kept_long_enough
WITH old AS (
    SELECT id FROM sg_done
    WHERE keep_until_us > 0 AND keep_until_us <= $1::bigint AND unique_until_us <= $1::bigint AND id <> ALL($2::bigint[])
    ORDER BY keep_until_us LIMIT $3::bigint
), gone AS (
    DELETE FROM sg_done USING old WHERE sg_done.id = old.id RETURNING sg_done.id
), without_long AS (
    DELETE FROM sg_long USING old WHERE sg_long.id = old.id
)
SELECT count(*) FROM gone

-- name: replication
SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit')

-- name: propose_text
INSERT INTO sg_meta (key, value, text) VALUES ($1::text, 0, $2::text) ON CONFLICT (key) DO NOTHING

-- name: meta_text
SELECT text FROM sg_meta WHERE key = $1::text

-- name: announce_node
INSERT INTO sg_node (id, name, address, version, is_owner, beat)
VALUES ($1::bigint, $2::text, $3::text, $4::text, $5::bigint, 1)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name,
    address = excluded.address,
    version = excluded.version,
    is_owner = excluded.is_owner,
    beat = sg_node.beat + 1
RETURNING (1000000 * extract(epoch FROM clock_timestamp()))::bigint

-- name: nodes
SELECT id, name, address, version, is_owner, beat FROM sg_node ORDER BY name, id

-- name: forget_nodes
DELETE FROM sg_node WHERE id = ANY($1::bigint[])

-- name: forget_node_named
DELETE FROM sg_node WHERE name = $1::text

-- name: terminate_frozen
-- Every session that has locked a row of a node and waits for its client in the middle of a transaction.
SELECT pg_terminate_backend(lock.pid)
FROM pg_locks AS lock JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
WHERE lock.locktype = 'relation' AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND lock.relation = 'sg_node'::regclass AND lock.mode = 'RowExclusiveLock' AND lock.pid <> pg_backend_pid()
    AND activity.wait_event_type = 'Client' AND activity.xact_start < clock_timestamp() - interval '300 milliseconds'

-- name: join_node
-- Unless a server owns everything by sg_lease. The beat of the lease makes one fail that takes it at the same time.
WITH free AS (
    UPDATE sg_lease SET beat = beat + 1 WHERE id = 1 AND holder = 0 RETURNING 1
)
INSERT INTO sg_node (id, name, address, version, is_owner, beat, epoch, lease_ms, process)
SELECT $1::bigint, $2::text, $3::text, $4::text, 1, 1, 1, $5::bigint, $6::text FROM free
RETURNING 1

-- name: node_leases
SELECT id, epoch, beat, lease_ms, is_leaving, name, process FROM sg_node WHERE epoch > 0 ORDER BY id

-- name: partitions
SELECT id, node, epoch FROM sg_partition ORDER BY id

-- name: node_fence
-- Division by zero, which aborts the transaction, unless this node was not evicted.
WITH beaten AS (
    UPDATE sg_node SET beat = beat + 1 WHERE id = $1::bigint AND epoch = $2::bigint RETURNING 1
)
SELECT 1 / count(*) FROM beaten

-- name: renew_node
-- After this no transaction that was begun before, on another connection, can commit.
UPDATE sg_node SET epoch = epoch + 1, beat = beat + 1 WHERE id = $1::bigint AND epoch > 0 RETURNING epoch

-- name: lock_nodes
-- Always in the same order, so that two nodes that evict each other do not wait for each other.
SELECT id FROM sg_node WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE

-- name: evict_node
-- The beat as it was seen, or NULL if the node leaves by itself.
WITH gone AS (
    DELETE FROM sg_node WHERE id = $1::bigint AND epoch = $2::bigint AND ($3::bigint IS NULL OR beat = $3::bigint) RETURNING id
), locked AS (
    SELECT part.id FROM sg_partition AS part JOIN gone ON part.node = gone.id ORDER BY part.id FOR UPDATE OF part
), freed AS (
    UPDATE sg_partition SET node = 0, epoch = epoch + 1 FROM locked WHERE sg_partition.id = locked.id RETURNING 1
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM freed)

-- name: claim_partitions
WITH locked AS (
    SELECT id FROM sg_partition WHERE id = ANY($2::bigint[]) AND node = 0 ORDER BY id FOR UPDATE
)
UPDATE sg_partition SET node = $1::bigint, epoch = epoch + 1 FROM locked WHERE sg_partition.id = locked.id
RETURNING sg_partition.id, sg_partition.epoch

-- name: reserve_ids
INSERT INTO sg_meta (key, value) VALUES ('next_job_id', 1 + $1::bigint)
ON CONFLICT (key) DO UPDATE SET value = sg_meta.value + $1::bigint
RETURNING value - $1::bigint

-- name: free_partitions
-- Division by zero unless this node owns all of them.
WITH locked AS (
    SELECT id FROM sg_partition WHERE id = ANY($2::bigint[]) AND node = $1::bigint ORDER BY id FOR UPDATE
), freed AS (
    UPDATE sg_partition SET node = 0, epoch = epoch + 1 FROM locked WHERE sg_partition.id = locked.id RETURNING 1
)
SELECT 1 / (count(*) = $3::bigint)::integer FROM freed

-- name: node_leaves
UPDATE sg_node SET is_leaving = 1, beat = beat + 1 WHERE id = $1::bigint

-- name: places
SELECT function, partition FROM sg_place ORDER BY function

-- name: put_place
-- By the node that owns the partition that the function leaves.
WITH own AS (SELECT id FROM sg_partition WHERE id = $2::bigint AND node = $3::bigint FOR NO KEY UPDATE)
INSERT INTO sg_place (function, partition) SELECT $1::bytea, $4::bigint FROM own
ON CONFLICT (function) DO UPDATE SET partition = excluded.partition RETURNING partition

-- name: drop_place
WITH own AS (SELECT id FROM sg_partition WHERE id = $2::bigint AND node = $3::bigint FOR NO KEY UPDATE)
DELETE FROM sg_place USING own WHERE function = $1::bytea RETURNING partition

-- name: shards
SELECT function, shards, most FROM sg_shards ORDER BY function

-- name: put_shards
-- By the node that owns the partition of the function, and of all its shards if they are united.
WITH own AS (SELECT id FROM sg_partition WHERE id = $2::bigint AND node = $3::bigint FOR NO KEY UPDATE)
INSERT INTO sg_shards (function, shards, most) SELECT $1::bytea, $4::bigint, $4::bigint FROM own
ON CONFLICT (function) DO UPDATE SET shards = excluded.shards, most = greatest(sg_shards.most, excluded.most)
RETURNING shards

-- name: drop_place_of_shard
DELETE FROM sg_place WHERE function = $1::bytea

-- name: owned_special
SELECT $columns, payload FROM sg_job
WHERE id > $1::bigint AND function_id = ANY($3::integer[]) AND ($is_plain) IS NOT TRUE ORDER BY id LIMIT $2::bigint

-- name: owned_plain
SELECT id, CASE WHEN is_plain THEN function_id END, priority, delivery, created_us, unique_key FROM (
    SELECT id, function_id, priority, delivery, created_us, unique_key, (function_id = ANY($2::integer[]) AND $is_plain) IS TRUE AS is_plain
    FROM sg_job WHERE id > $1::bigint ORDER BY id LIMIT 4096
) AS next

-- name: owned_keys
SELECT $columns, NULL::bytea FROM sg_done
WHERE unique_until_us > 0 AND unique_until_us > $1::bigint AND id > $2::bigint AND function_id = ANY($4::integer[])
ORDER BY id LIMIT $3::bigint

-- name: reserve_function_ids
INSERT INTO sg_meta (key, value)
VALUES ('next_function_id', (SELECT coalesce(max(id), 0) FROM sg_function) + 1 + $1::bigint)
ON CONFLICT (key) DO UPDATE
SET value = greatest(sg_meta.value, (SELECT coalesce(max(id), 0) FROM sg_function) + 1) + $1::bigint
RETURNING value - $1::bigint

-- name: propose_secret
INSERT INTO sg_meta (key, value, text) VALUES ('link_secret', 0, $1::text) ON CONFLICT (key) DO NOTHING

-- name: secret
SELECT text FROM sg_meta WHERE key = 'link_secret'

-- name: node_addresses
SELECT id, name, address, version FROM sg_node WHERE epoch > 0 ORDER BY id

-- name: put_inbox
INSERT INTO sg_inbox (partition, jobs) VALUES ($1::bigint, $2::bigint[])

-- name: inbox
SELECT id, partition, jobs FROM sg_inbox WHERE partition = ANY ($1::bigint[]) ORDER BY id LIMIT 100

-- name: empty_inbox
DELETE FROM sg_inbox WHERE id = ANY ($1::bigint[])
