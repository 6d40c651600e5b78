-- The database of the site.

CREATE TABLE users (
    uid INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    birthday TEXT NOT NULL,          -- MM-DD
    account TEXT NOT NULL,           -- free or paid
    paid_until TEXT NOT NULL         -- YYYY-MM-DD, empty for those who never paid
);

CREATE TABLE friends (
    uid INTEGER NOT NULL REFERENCES users,
    friend INTEGER NOT NULL REFERENCES users,
    PRIMARY KEY (uid, friend)
);

CREATE TABLE feeds (
    uid INTEGER PRIMARY KEY,         -- a journal that is filled from elsewhere
    url TEXT NOT NULL,
    title TEXT NOT NULL DEFAULT ''
);

CREATE TABLE feed_items (
    uid INTEGER NOT NULL REFERENCES feeds,
    guid TEXT NOT NULL,
    title TEXT NOT NULL,
    link TEXT NOT NULL,
    PRIMARY KEY (uid, guid)
);

CREATE TABLE captchas (
    file TEXT PRIMARY KEY,
    answer TEXT NOT NULL
);

CREATE TABLE statistics (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
);

CREATE TABLE web_nodes (
    name TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    pid INTEGER NOT NULL
);

-- What is to be done by jobs that carry no arguments: the job says that there is something, this says what.
CREATE TABLE errands (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,              -- the name of the job
    subject TEXT NOT NULL,
    taken_until REAL NOT NULL DEFAULT 0,
    UNIQUE (kind, subject)
);
