-- See ../sqlite/002_audit.sql for what the columns mean.

CREATE TABLE joblog_audit (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_us BIGINT NOT NULL,
    identity TEXT NOT NULL,
    protocol TEXT NOT NULL,
    address TEXT NOT NULL,
    verb TEXT NOT NULL,
    target TEXT NOT NULL,
    outcome TEXT NOT NULL,
    host TEXT NOT NULL
);

CREATE INDEX joblog_audit_time ON joblog_audit (at_us);
