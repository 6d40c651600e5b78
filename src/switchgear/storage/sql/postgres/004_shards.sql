-- Version 4: functions may be divided into shards.  See docs/decisions/039-shards.md.

-- Functions that are divided, or were: the names of their shards stand for them.
CREATE TABLE sg_shards (
    function bytea PRIMARY KEY,
    shards bigint NOT NULL,           -- 1: it is not divided any more
    most bigint NOT NULL              -- how many it has had
);
