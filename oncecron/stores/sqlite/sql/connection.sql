-- The statements of every connection.

-- name: wait_at_most
-- How long a statement waits for the lock of another process. A pragma takes no parameters.
PRAGMA busy_timeout = {milliseconds}

-- name: sync_each_commit
-- Before grants and ends: they survive a power cut.
PRAGMA synchronous = FULL

-- name: sync_later
-- Before heartbeats and skips: after a power cut the file is intact, but the last ones may be missing.
PRAGMA synchronous = NORMAL

-- name: write_ahead
PRAGMA journal_mode = WAL

-- name: begin_reading
BEGIN DEFERRED

-- name: begin_writing
-- Take the lock immediately: a transaction that reads first and writes later can fail in between.
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: schema_version
SELECT value, (SELECT value FROM meta WHERE name = 'schema_oldest') FROM meta WHERE name = 'schema_version'

-- name: set_schema_version
-- The oldest version of a program that the schema serves; '' for its own version alone.
REPLACE INTO meta (name, value) VALUES ('schema_version', :version), ('schema_oldest', coalesce(:oldest, ''))

-- name: count_objects
-- Whether the file has any content.
SELECT count(*) FROM sqlite_master
