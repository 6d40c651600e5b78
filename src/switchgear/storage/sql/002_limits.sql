-- Version 2: how many jobs of a function may run, and how often one may start.

ALTER TABLE functions ADD COLUMN policy BLOB;  -- policy.Policy as a msgpack map; NULL: no limits
