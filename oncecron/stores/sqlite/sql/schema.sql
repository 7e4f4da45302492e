-- The schema, version 1: one statement a section, run in this order in one transaction.
-- Only what SQLite 3.24 knows (upserts): no STRICT, no RETURNING, for enterprise systems have 3.34.
-- Wall times are seconds since the epoch by this machine's clock; `..._on_lease_clock` is CLOCK_MONOTONIC of the
-- boot that `boot` names: suspend and steps of the wall clock neither end nor prolong a lease.

-- name: meta
-- What this file is; `schema_version` is read before anything else.
CREATE TABLE meta (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID

-- name: job_key
-- One row per part of a key: its fence, how far its ticks have come, and how it was last claimed.
-- Here and not in the log, so that no retention can forget it.
CREATE TABLE job_key (
  key                TEXT    NOT NULL,
  shard              INTEGER NOT NULL,
  fence              INTEGER NOT NULL DEFAULT 0,  -- the last fencing token
  high_water         REAL,                        -- the newest instant that was ever claimed
  last_execution_id  INTEGER,                     -- whose start the next two tell
  last_start         REAL,
  last_lateness      REAL,                        -- seconds into its own minute, by its own host's clock
  previous_start     REAL,                        -- what they were before: a start that was none is taken back
  previous_lateness  REAL,
  schedule           TEXT,
  zone               TEXT,
  PRIMARY KEY (key, shard)
) WITHOUT ROWID

-- name: job_execution
-- The job-execution log: a row for each start of a command.
CREATE TABLE job_execution (
  execution_id  INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, also after a prune
  key           TEXT    NOT NULL,
  shard         INTEGER NOT NULL,
  tick          TEXT,                               -- null: the firing belonged to no tick
  tick_instant  REAL,                               -- null: a name that is no instant
  named         INTEGER NOT NULL CHECK (named = (tick IS NOT NULL AND tick_instant IS NULL)),
  attempt       INTEGER NOT NULL CHECK (attempt >= 1),
  owner_attempt INTEGER NOT NULL,                   -- as its owner knows it; another one only if a delivered
                                                    -- record found its number taken
  outcome       TEXT    NOT NULL CHECK (outcome IN ('running', 'succeeded', 'failed', 'timed-out', 'stopped',
                                                    'lost', 'not-started', 'unclaimed')),
  cause         TEXT    NOT NULL CHECK (cause IN ('schedule', 'manual', 'takeover', 'retry')),  -- why it was started
  exit_code     INTEGER,
  signal        INTEGER,
  host          TEXT    NOT NULL,
  pid           INTEGER NOT NULL,
  user          TEXT    NOT NULL,
  command       TEXT    NOT NULL,
  started_at    REAL    NOT NULL,
  finished_at   REAL,
  duration      REAL,
  fencing_token INTEGER,
  owner         TEXT    NOT NULL,
  lost_at       REAL,                               -- when its lease was found to be over, whatever came out later
  lost_reason   TEXT CHECK (lost_reason IN ('expired', 'released', 'superseded', 'revoked', 'not-renewed',
                                            'guard-killed', 'guard-failed', 'guard-hung')),
  note          TEXT,                               -- for people: nothing reads it
  shards        INTEGER NOT NULL DEFAULT 1,         -- how many parts its firing knew of
  retries       INTEGER NOT NULL DEFAULT 0,         -- how many further attempts its tick might have had
  retrying      INTEGER NOT NULL DEFAULT 0,         -- its end was told by `keep`, and nobody has given it up since
  request       TEXT CHECK (request IN ('stop', 'release')),  -- what its holder was asked for, also after its end
  requested_by  TEXT,                               -- who asked: USER@HOST
  output        TEXT,                               -- null: not captured
  output_cut    INTEGER,
  CHECK (lost_reason IS NOT NULL OR outcome <> 'lost' AND lost_at IS NULL),
  CHECK ((request IS NULL) = (requested_by IS NULL))
)

-- name: one_attempt
-- A tick's attempts are counted once.
CREATE UNIQUE INDEX execution_attempt ON job_execution (key, tick, shard, attempt) WHERE tick IS NOT NULL

-- name: one_running
-- Never two at a time.
CREATE UNIQUE INDEX execution_running ON job_execution (key, shard) WHERE outcome = 'running'

-- name: one_per_owner
-- Every call after the claim, and every delivery, means one row.
CREATE UNIQUE INDEX execution_owner ON job_execution (owner, key, shard, owner_attempt)

-- name: executions_of_key
-- The last executions of a key: SQLite adds the id to the index by itself.
CREATE INDEX execution_key ON job_execution (key)

-- name: executions_by_age
-- For retention. Not the names: a key keeps its newest, and they would stand in the way of all others.
CREATE INDEX execution_age ON job_execution (started_at) WHERE named = 0

-- name: executions_by_name
-- For the retention of names, which counts the names of one key. By age as well: names that are neither among the
-- newest nor expired may be hundreds of thousands, and are not to be looked at.
CREATE INDEX execution_name ON job_execution (key, shard, started_at, attempt) WHERE named = 1

-- name: dead_letters
-- Which might have been tried again, and have failed.
CREATE INDEX execution_failed ON job_execution (key)
 WHERE retries > 0 AND outcome IN ('failed', 'timed-out', 'lost')

-- name: lease
-- The exclusive right to run a part of a key: one row, by the primary key.
CREATE TABLE lease (
  key                      TEXT    NOT NULL,
  shard                    INTEGER NOT NULL,
  execution_id             INTEGER NOT NULL UNIQUE,
  owner                    TEXT    NOT NULL,
  ttl                      REAL    NOT NULL,
  boot                     TEXT    NOT NULL,
  heartbeat_on_lease_clock REAL    NOT NULL,
  expires_on_lease_clock   REAL    NOT NULL,
  acquired_at              REAL    NOT NULL,  -- these three for people
  heartbeat_at             REAL    NOT NULL,
  expires_at               REAL    NOT NULL,
  request                  TEXT CHECK (request IN ('stop', 'release')),  -- what its holder is asked for
  requested_by             TEXT,
  request_signal           INTEGER,
  request_grace            REAL,
  request_acknowledged_at         REAL,              -- null: it was not told yet
  PRIMARY KEY (key, shard)
) WITHOUT ROWID

-- name: skip
-- Refusals, counted.
CREATE TABLE skip (
  key         TEXT    NOT NULL,
  shard       INTEGER NOT NULL,
  tick        TEXT    NOT NULL,  -- '' for no tick
  host        TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  pid         INTEGER NOT NULL,  -- of the last
  holder_host TEXT,
  holder_pid  INTEGER,
  at          REAL    NOT NULL,  -- of the newest
  count       INTEGER NOT NULL,
  detail      TEXT,
  delivered   TEXT,              -- owners of the last eight that were told late or for the log alone
  PRIMARY KEY (key, tick, shard, host, reason)
) WITHOUT ROWID

-- name: skips_by_age
CREATE INDEX skip_age ON skip (at)

-- name: pause
-- A paused key; `*` is every key.
CREATE TABLE pause (
  key    TEXT NOT NULL PRIMARY KEY,
  until  REAL,                     -- null: until it is resumed
  reason TEXT,
  author TEXT NOT NULL,
  at     REAL NOT NULL
) WITHOUT ROWID

-- name: drain
-- A host that claims nothing new.
CREATE TABLE drain (
  host   TEXT NOT NULL PRIMARY KEY,
  author TEXT NOT NULL,
  at     REAL NOT NULL
) WITHOUT ROWID

-- name: version
INSERT INTO meta (name, value) VALUES ('schema_version', '1')
