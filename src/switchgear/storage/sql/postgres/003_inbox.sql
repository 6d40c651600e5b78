-- Version 3: a node may store jobs for the owners of other partitions.  See docs/decisions/037-partition-owners.md.

-- Jobs that were stored by another node than their owner, in the same transaction: the owner takes them, and deletes the
-- row.  An owner that claims the partition finds them anyway.
CREATE TABLE sg_inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition bigint NOT NULL,
    jobs bigint[] NOT NULL
);
