-- The schema of oncecron, PostgreSQL 13 or newer.  {ns} stands for the quoted name of the schema (the namespace).
-- Run in one transaction.  Every function is qualified by hand and carries a version: hosts
-- with the next release call look_v2 beside look_v1, so that they can be upgraded in any order.

-- A schema that somebody else has made is never adopted: its owner could replace every function.
create schema {ns};
comment on schema {ns} is 'oncecron: leases and the job-execution log';

-- The least retention, in seconds, is the owner's: no caller of a function can have a younger row removed.
create table {ns}.meta (
  version          integer not null,
  created_at       timestamptz not null default pg_catalog.clock_timestamp(),
  least_executions double precision not null default {least_executions} check (least_executions >= 0),
  least_skips      double precision not null default {least_skips} check (least_skips >= 0)
);
insert into {ns}.meta (version) values (1);

-- The hot row of a (key, shard): all that a claim must know in the plain case. Its oid and key_id are the two halves of
-- the session advisory lock.
--
-- The lease stands in it, from `owner` to `request_acknowledged_at`: all null without one. So does the newest start,
-- from `newest_id` to `newest_owner`; where there is a lease, that is its execution. Whatever changes the row sets
-- `version`, which a grant compares. Whatever raises the fence first locks the row FOR UPDATE, and assert_fence() takes
-- it FOR KEY SHARE; all other updates (heartbeats, ends, requests) pass by a job's transaction that holds the fence.
create table {ns}.job_key (
  key_id            integer generated always as identity primary key,
  key               text not null,
  shard             integer not null default 0,
  version           bigint not null default 0,
  fence             bigint not null default 0,
  high_water        timestamptz,             -- the newest instant that was granted
  seen_until        timestamptz,             -- the newest instant of an execution: above it the log has none
  running           bigint,                  -- the execution that is recorded as running
  listened          boolean not null default false,   -- whether a session other than the holder's has ever listened
  owner             uuid,
  execution_id      bigint,
  ttl               interval,                -- as last claimed
  session_lock      boolean,                 -- false behind a transaction pooler: the row alone
  backend_pid       integer,
  backend_start     timestamptz,
  acquired_at       timestamptz,
  heartbeat_at      timestamptz,
  expires_at        timestamptz,
  request_kind      text check (request_kind in ('stop', 'release')),   -- the request to the holder
  request_author    text,
  request_signal    integer,
  request_grace     double precision,
  request_acknowledged_at timestamptz,       -- when a renewal delivered it
  newest_id         bigint,                  -- null: retention has removed it
  tick              text,
  tick_known        boolean not null default true,    -- whether the newest start is also the tick's last attempt in the log
  tick_attempt      integer,
  newest_outcome    text,
  retrying          boolean,
  requested_by      text,
  host              text,
  pid               integer,
  user_name         text,
  newest_started_at timestamptz,
  newest_owner      uuid,
  last_execution_id bigint,
  last_started_at   timestamptz,
  last_lateness     double precision,        -- seconds into its own minute, by its own host's clock
  previous_started_at timestamptz,           -- of the start before, in case the last one did not happen
  previous_lateness double precision,
  schedule          text,                    -- the key is expected to run by it, from expected_since on
  zone              text,
  expected_shards   integer,
  starting_deadline double precision,
  expected_since    timestamptz,
  forgotten_at      timestamptz,             -- when a person removed what was expected
  shards            integer not null default 1,
  divisions         text,                    -- on shard 0's row: a line "SHARDS TICK" for each of the key's last eight ticks
  divided_until     timestamptz,             -- on shard 0's row: the newest instant of an execution of any shard
  unique (key, shard),
  check (num_nonnulls(owner, execution_id, session_lock, acquired_at, heartbeat_at, expires_at) in (0, 6)),
  check (execution_id = newest_id)
) with (fillfactor = 50);

create table {ns}.job_execution (
  execution_id  bigint generated always as identity primary key,
  key_id        integer not null references {ns}.job_key,
  tick          text,                        -- a UTC instant, a name, or null: no tick
  tick_at       timestamptz,                 -- the instant, null for names
  attempt       integer not null check (attempt > 0),
  owner_attempt integer not null,            -- the owner's number; differs if a late record found its number taken
  outcome       text not null check (outcome in
                  ('running', 'succeeded', 'failed', 'timed-out', 'stopped', 'lost', 'not-started', 'unclaimed')),
  cause         text not null check (cause in ('schedule', 'manual', 'takeover', 'retry')),    -- why it was started
  exit_code     integer,
  signal        integer,
  host          text not null,
  pid           integer not null,
  user_name     text not null,
  command       text not null,
  fired_at      timestamptz,                 -- the firing host's clock
  started_at    timestamptz not null,
  finished_at   timestamptz,
  duration      double precision,
  lost_at       timestamptz,                 -- when its lease was found expired; it stays when the end comes later
  lost_reason   text check (lost_reason in
                  ('expired', 'released', 'superseded', 'revoked', 'not-renewed', 'guard-killed', 'guard-failed', 'guard-hung')),
  fencing_token bigint,
  owner         uuid not null,
  note          text,                        -- for people: no program reads it
  shards        integer not null default 1,
  retries       integer not null default 0,  -- how many further attempts its tick may have
  retrying      boolean not null default false,   -- it ended, and its owner is to retry it, or has begun to
  request       text check (request in ('stop', 'release')),   -- the last request to its holder, also after its end
  requested_by  text,                        -- USER@HOST
  unique (key_id, tick, attempt),
  unique (owner, key_id, owner_attempt),
  check (lost_reason is not null or outcome <> 'lost' and lost_at is null),
  check ((request is null) = (requested_by is null))
);
create unique index job_execution_one_running on {ns}.job_execution (key_id) where outcome = 'running';
-- Retention counts named ticks. Together the two indexes find the last executions of any key, also of one that rarely
-- runs or no longer runs: 0.2 ms at a million rows instead of 4.8 s with the primary key, for 6 % more disk.
create index job_execution_names on {ns}.job_execution (key_id, execution_id) where tick is not null and tick_at is null;
create index job_execution_others on {ns}.job_execution (key_id, execution_id) where tick is null or tick_at is not null;
-- The dead letters are few among a million rows.
create index job_execution_given_up on {ns}.job_execution (execution_id) where retries > 0 and outcome in ('failed', 'timed-out', 'lost');
create index job_execution_started on {ns}.job_execution using brin (started_at) with (autosummarize = on, pages_per_range = 32);

-- The end of the captured output of an execution.
create table {ns}.job_output (
  execution_id bigint primary key references {ns}.job_execution on delete cascade,
  output       text not null,
  cut          bigint not null               -- bytes that came before
);

create table {ns}.skip (
  key_id      integer not null references {ns}.job_key,
  tick        text not null,                 -- '' for no tick
  host        text not null,
  reason      text not null,
  pid         integer not null,
  fired_at    timestamptz,
  holder_host text,
  holder_pid  integer,
  detail      text,
  at          timestamptz not null,          -- of the newest
  count       bigint not null default 1,
  delivered   text,                          -- the owners of the last eight delivered records
  primary key (key_id, tick, host, reason)
);
create index skip_at on {ns}.skip using brin (at) with (autosummarize = on, pages_per_range = 32);

-- The pauses of keys, and the drains of hosts.
create table {ns}.pause (
  kind       text not null check (kind in ('key', 'host')),
  name       text not null,                  -- the key, '*' for all keys, or the drained host
  until      timestamptz,
  reason     text,
  author     text not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  primary key (kind, name)
);
