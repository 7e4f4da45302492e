-- The schema: one statement a section, run in this order in one transaction. Its version is set last.
-- Only features of SQLite 3.24 (upserts), no STRICT and no RETURNING: enterprise distributions have 3.34.
-- Wall times are seconds since the epoch by this machine's clock; `..._on_lease_clock` is CLOCK_MONOTONIC of the
-- boot that `boot` names: suspend and steps of the wall clock neither end nor prolong a lease.

-- name: meta
-- The identity of this file; `schema_version` is read before anything else.
CREATE TABLE meta (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID

-- name: job_key
-- One row per part of a key: its fence, its high-water mark, and how it was last claimed.
-- It is not in the log, so retention cannot remove it.
CREATE TABLE job_key (
  key                TEXT    NOT NULL,
  shard              INTEGER NOT NULL,
  fence              INTEGER NOT NULL DEFAULT 0,  -- the last fencing token
  high_water         REAL,                        -- the newest instant that was ever claimed
  last_execution_id  INTEGER,                     -- the execution of the next two columns
  last_start         REAL,
  last_lateness      REAL,                        -- seconds into its own minute, by its own host's clock
  previous_start     REAL,                        -- the values before, in case the last start did not happen
  previous_lateness  REAL,
  schedule           TEXT,                        -- the key is expected to run by it, from expected_since on
  zone               TEXT,
  expected_shards    INTEGER,
  starting_deadline  REAL,
  expected_since     REAL,
  forgotten_at       REAL,                        -- when a person removed what was expected
  forgotten_by       TEXT,
  PRIMARY KEY (key, shard)
) WITHOUT ROWID

-- name: job_execution
-- The job-execution log: a row for each start of a command.
CREATE TABLE job_execution (
  execution_id  INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused, even after a prune
  key           TEXT    NOT NULL,
  shard         INTEGER NOT NULL,
  tick          TEXT,                               -- null: the firing belonged to no tick
  tick_instant  REAL,                               -- null: a name that is no instant
  named         INTEGER NOT NULL CHECK (named = (tick IS NOT NULL AND tick_instant IS NULL)),
  attempt       INTEGER NOT NULL CHECK (attempt >= 1),
  owner_attempt INTEGER NOT NULL,                   -- the owner's number; differs only if a delivered
                                                    -- record found its number taken
  outcome       TEXT    NOT NULL CHECK (outcome IN ('running', 'succeeded', 'failed', 'timed-out', 'stopped',
                                                    'lost', 'not-started', 'unclaimed')),
  cause         TEXT    NOT NULL CHECK (cause IN ('schedule', 'manual', 'takeover', 'retry', 'catch-up')),  -- why it was started
  exit_code     INTEGER,
  signal        INTEGER,
  host          TEXT    NOT NULL,
  pid           INTEGER NOT NULL,
  user          TEXT    NOT NULL,
  command       TEXT    NOT NULL,
  fired_at      REAL,                               -- when its process began, by the clock at that time
  started_at    REAL    NOT NULL,
  finished_at   REAL,
  duration      REAL,
  fencing_token INTEGER,
  owner         TEXT    NOT NULL,
  lost_at       REAL,                               -- when its lease was found expired; it stays
  lost_reason   TEXT CHECK (lost_reason IN ('expired', 'released', 'superseded', 'revoked', 'not-renewed',
                                            'guard-killed', 'guard-failed', 'guard-hung')),
  note          TEXT,                               -- for people: no program reads it
  shards        INTEGER NOT NULL DEFAULT 1,         -- the number of parts of its firing
  retries       INTEGER NOT NULL DEFAULT 0,         -- how many further attempts its tick may have
  retrying      INTEGER NOT NULL DEFAULT 0,         -- its end came by `keep`, and its owner has not given up
  request       TEXT CHECK (request IN ('stop', 'release')),  -- the last request to its holder, also after its end
  requested_by  TEXT,                               -- USER@HOST
  output        TEXT,                               -- null: not captured
  output_cut    INTEGER,
  place         TEXT,                               -- where the next attempt of the tick goes on (`place_text`)
  CHECK (lost_reason IS NOT NULL OR outcome <> 'lost' AND lost_at IS NULL),
  CHECK ((request IS NULL) = (requested_by IS NULL))
)

-- name: one_attempt
-- Each attempt of a tick exists once.
CREATE UNIQUE INDEX execution_attempt ON job_execution (key, tick, shard, attempt) WHERE tick IS NOT NULL

-- name: one_running
-- Never two at a time.
CREATE UNIQUE INDEX execution_running ON job_execution (key, shard) WHERE outcome = 'running'

-- name: one_per_owner
-- Every call after the claim, and every delivery, is for one row.
CREATE UNIQUE INDEX execution_owner ON job_execution (owner, key, shard, owner_attempt)

-- name: executions_of_key
-- The last executions of a key: SQLite adds the id to the index by itself.
CREATE INDEX execution_key ON job_execution (key)

-- name: executions_by_age
-- For retention. Without named ticks: a key keeps its newest ones, and they would hide all others.
CREATE INDEX execution_age ON job_execution (started_at) WHERE named = 0

-- name: executions_by_name
-- For the retention of named ticks, which counts those of one key. By age as well: hundreds of thousands may be neither among
-- the newest nor expired, and must not be read.
CREATE INDEX execution_name ON job_execution (key, shard, started_at, attempt) WHERE named = 1

-- name: dead_letters
-- Failed executions that could have been retried.
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
  request                  TEXT CHECK (request IN ('stop', 'release')),  -- the request to the holder
  requested_by             TEXT,
  request_signal           INTEGER CHECK (request_signal BETWEEN 1 AND 64),
  request_grace            REAL CHECK (request_grace BETWEEN 0 AND 3653 * 86400),
  request_acknowledged_at         REAL,              -- null: not delivered yet
  PRIMARY KEY (key, shard)
) WITHOUT ROWID

-- name: skip
-- Skips, counted.
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
  delivered   TEXT,              -- the owners of the last eight delivered records
  PRIMARY KEY (key, tick, shard, host, reason)
) WITHOUT ROWID

-- name: key_host
-- The hosts that fire a key: what the last firing of each told (core/presence.py).
CREATE TABLE key_host (
  key      TEXT NOT NULL,
  shard    INTEGER NOT NULL,
  host     TEXT NOT NULL,
  seen_at  REAL NOT NULL,
  presence TEXT NOT NULL,
  PRIMARY KEY (key, shard, host)
) WITHOUT ROWID

-- name: skips_by_age
CREATE INDEX skip_age ON skip (at)

-- name: plain_skips
-- Plain skips (core/decision.py): a word for each, of a host and a window; see stores/reader.py.
CREATE TABLE plain_skips (
  key    TEXT    NOT NULL,
  shard  INTEGER NOT NULL,
  window INTEGER NOT NULL,       -- the minute at which it begins, since the epoch
  host   TEXT    NOT NULL,
  words  TEXT    NOT NULL,
  at     REAL    NOT NULL,       -- of the newest
  PRIMARY KEY (key, shard, window, host)
) WITHOUT ROWID

-- name: plain_skips_by_age
CREATE INDEX plain_skips_age ON plain_skips (at)

-- name: pause
-- The pauses of keys, and the drains of hosts. One that has ended is over (`at` and `until` are 0), and one of the past.
CREATE TABLE pause (
  kind   TEXT NOT NULL CHECK (kind IN ('key', 'host')),
  name   TEXT NOT NULL,            -- the key, `*` for all keys, or the drained host
  until  REAL,                     -- null: until somebody ends it
  reason TEXT,
  author TEXT NOT NULL,
  at     REAL NOT NULL,
  past   TEXT NOT NULL DEFAULT '',   -- the last 45 that are over: `SINCE-UNTIL ` of each, in whole seconds
  PRIMARY KEY (kind, name)
) WITHOUT ROWID
