-- What operators have done, and what was refused to peers: see audit.py.
CREATE TABLE joblog_audit (
    id INTEGER PRIMARY KEY,           -- in the order of writing; pages go by it
    at_us INTEGER NOT NULL,
    identity TEXT NOT NULL,           -- who; 'anonymous' if the peer has not identified itself
    protocol TEXT NOT NULL,
    address TEXT NOT NULL,            -- from where
    verb TEXT NOT NULL,
    target TEXT NOT NULL,             -- the arguments of the verb
    outcome TEXT NOT NULL,            -- 'done' or 'refused'
    host TEXT NOT NULL                -- of the server
);

CREATE INDEX joblog_audit_time ON joblog_audit (at_us);
