-- What every connection says, whoever asks.

-- name: wait_at_most
-- How long a statement waits for another process's lock. A pragma takes no parameters.
PRAGMA busy_timeout = {milliseconds}

-- name: sync_each_commit
-- Before grants and ends: what was answered survives a power cut.
PRAGMA synchronous = FULL

-- name: sync_later
-- Before heartbeats and skips: the file stays whole, the last ones may be missing after a power cut.
PRAGMA synchronous = NORMAL

-- name: write_ahead
PRAGMA journal_mode = WAL

-- name: begin_reading
BEGIN DEFERRED

-- name: begin_writing
-- The lock at once: a transaction that reads first and writes later can fail in between.
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: schema_version
SELECT value FROM meta WHERE name = 'schema_version'

-- name: count_objects
-- Whether anything at all is in the file.
SELECT count(*) FROM sqlite_master
