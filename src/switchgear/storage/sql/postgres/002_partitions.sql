-- Version 2: several nodes may each own some partitions of functions.  See docs/decisions/037-partition-owners.md.

-- A node of which the epoch is 0 owns no partitions: it stands by, or owns everything by sg_lease.
ALTER TABLE sg_node
    ADD COLUMN epoch bigint NOT NULL DEFAULT 0,        -- a commit names its epoch; one of an earlier epoch fails
    ADD COLUMN lease_ms bigint NOT NULL DEFAULT 0,     -- how long the node may be silent
    ADD COLUMN process text NOT NULL DEFAULT '',       -- as sg_lease.process
    ADD COLUMN is_leaving bigint NOT NULL DEFAULT 0;   -- it claims no partitions, and hands over those that it has

-- Which node owns each partition.
CREATE TABLE sg_partition (
    id bigint PRIMARY KEY,
    node bigint NOT NULL,             -- sg_node.id; 0: nobody
    epoch bigint NOT NULL             -- raised with each change of the node
) WITH (fillfactor = 10);

INSERT INTO sg_partition SELECT number, 0, 0 FROM generate_series(0, 63) AS number;

-- Functions that are not in the partition that follows from their name.
CREATE TABLE sg_place (
    function bytea PRIMARY KEY,
    partition bigint NOT NULL REFERENCES sg_partition (id)
);
