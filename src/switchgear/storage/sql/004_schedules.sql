-- Version 4: schedules.  A row changes in the same transaction in which the job is put that the schedule has made.

CREATE TABLE schedules (
    name BLOB PRIMARY KEY,
    function BLOB NOT NULL,
    spec TEXT NOT NULL,               -- a cron expression, or 'every 30 s'
    timezone TEXT NOT NULL,
    catch_up INTEGER NOT NULL,        -- model.CatchUp
    overlap INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    reached_us INTEGER NOT NULL,      -- ticks up to this moment have been met
    last_us INTEGER NOT NULL,
    last_job_id INTEGER NOT NULL,
    fired INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    options BLOB NOT NULL,            -- what each job is given, as a msgpack array
    payload BLOB NOT NULL
) WITHOUT ROWID;
