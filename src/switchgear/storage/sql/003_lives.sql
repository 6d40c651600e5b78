-- Jobs that are remembered for a time of their own after their end, and unique keys that outlive their job.

-- When the job is to be forgotten, 0: as the server's settings say, or it has not ended.
ALTER TABLE jobs ADD COLUMN keep_until_us INTEGER NOT NULL DEFAULT 0;
-- Until when the job holds its unique key, even if it ends before; 0: not beyond its end.
ALTER TABLE jobs ADD COLUMN unique_until_us INTEGER NOT NULL DEFAULT 0;

-- Starting up reads the jobs that ended and hold their key.
CREATE INDEX jobs_key_held ON jobs (unique_until_us) WHERE state >= 4 AND unique_until_us > 0;

-- Dropping the oldest of the history, and apart from that those whose own time is over.
DROP INDEX jobs_finished;
CREATE INDEX jobs_finished ON jobs (finished_us) WHERE state >= 4 AND keep_until_us = 0;
CREATE INDEX jobs_keep_until ON jobs (keep_until_us) WHERE state >= 4 AND keep_until_us > 0;
