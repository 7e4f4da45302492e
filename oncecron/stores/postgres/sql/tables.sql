-- The schema of oncecron, PostgreSQL 13 to 18.  {ns} stands for the quoted name of the schema (the namespace).
-- Run in one transaction.  Every function is qualified by hand and carries a version: hosts
-- with the next release call look_v2 beside look_v1, so that they can be upgraded in any order.

-- A schema that somebody else has made is never adopted: its owner could replace every function.
create schema {ns};
comment on schema {ns} is 'oncecron: leases and the job-execution log';

-- The version of the schema, and the oldest of the programs that it serves: null for its own version alone
-- (stores/schema_version.py). The least retention, in seconds, is the owner's: no caller of a function can have a younger row removed.
create table {ns}.meta (
  version          integer not null,
  oldest           integer,
  created_at       timestamptz not null default pg_catalog.clock_timestamp(),
  least_executions double precision not null default {least_executions} check (least_executions >= 0),
  least_skips      double precision not null default {least_skips} check (least_skips >= 0)
);
insert into {ns}.meta (version, oldest) values ({version}, {oldest});

-- What a value may be, whichever function writes it: a role that may fire chooses the arguments. Other values are
-- refused with check_violation (23514). core/bounds.py has the same limits for records that other stores receive.
create domain {ns}.key_name as text check (value ~ '^[A-Za-z0-9._:/@-]{1,200}$');
create domain {ns}.tick_name as text check (octet_length(value) <= 800 and value !~ '[[:space:][:cntrl:]]');
create domain {ns}.host_name as text check (octet_length(value) <= 1020);
create domain {ns}.short_text as text check (octet_length(value) <= 4000);
create domain {ns}.long_text as text check (octet_length(value) <= 65536);
create domain {ns}.document_text as text check (octet_length(value) <= 1048576);
create domain {ns}.place_text as text check (octet_length(value) <= 16384);
create domain {ns}.output_text as text check (octet_length(value) <= 8388608);
create domain {ns}.wall_time as timestamptz
  check (value between '0001-01-02 00:00:00+00' and '9999-12-31 00:00:00+00');       -- every zone can show it
create domain {ns}.seconds as double precision check (value between 0 and 1e10);     -- no infinity, and no NaN
create domain {ns}.lateness as double precision check (value between -60 and 60);     -- negative before 1970
create domain {ns}.lease_ttl as interval check (value > '0' and value <= '1 day');
create domain {ns}.natural_number as integer check (value >= 0);
create domain {ns}.attempt_number as integer check (value between 1 and 1000000);
create domain {ns}.shard_number as integer check (value between 0 and 999);
create domain {ns}.shard_count as integer check (value between 1 and 1000);
create domain {ns}.retry_count as integer check (value between 0 and 1000);
create domain {ns}.signal_number as integer check (value between 1 and 64);
create domain {ns}.exact_integer as bigint check (value between 0 and 9007199254740991);    -- exact as a double too

-- The hot row of a (key, shard): all that a claim must know in the plain case. Its oid and key_id are the two halves of
-- the session advisory lock.
--
-- The lease stands in it, from `owner` to `request_acknowledged_at`: all null without one. So does the newest start,
-- from `newest_id` to `newest_owner`; where there is a lease, that is its execution. Whatever changes the row sets
-- `version`, which a grant compares. Whatever raises the fence first locks the row FOR UPDATE, and assert_fence() takes
-- it FOR KEY SHARE; all other updates (heartbeats, ends, requests) pass by a job's transaction that holds the fence.
create table {ns}.job_key (
  key_id            integer generated always as identity primary key,
  key               {ns}.key_name not null,
  shard             {ns}.shard_number not null default 0,
  version           bigint not null default 0,
  fence             {ns}.exact_integer not null default 0,
  high_water        {ns}.wall_time,          -- the newest instant that was granted
  seen_until        {ns}.wall_time,          -- the newest instant of an execution: above it the log has none
  running           bigint,                  -- the execution that is recorded as running
  listened          boolean not null default false,   -- whether a session other than the holder's has ever listened
  owner             uuid,
  execution_id      bigint,
  ttl               {ns}.lease_ttl,          -- as last claimed
  session_lock      boolean,                 -- false for a connection that is not held, or is a pooler's: the row alone
  backend_pid       integer,
  backend_start     {ns}.wall_time,
  acquired_at       timestamptz,
  heartbeat_at      timestamptz,
  expires_at        timestamptz,
  request_kind      text check (request_kind in ('stop', 'release')),   -- the request to the holder
  request_author    {ns}.short_text,
  request_signal    {ns}.signal_number,
  request_grace     {ns}.seconds,
  request_acknowledged_at timestamptz,       -- when a renewal delivered it
  newest_id         bigint,                  -- null: retention has removed it
  tick              {ns}.tick_name,
  tick_known        boolean not null default true,    -- whether the newest start is also the tick's last attempt in the log
  tick_attempt      {ns}.attempt_number,
  newest_outcome    text,
  retrying          boolean,
  requested_by      {ns}.short_text,
  host              {ns}.host_name,
  pid               {ns}.natural_number,
  user_name         {ns}.short_text,
  newest_started_at {ns}.wall_time,
  newest_owner      uuid,
  last_execution_id bigint,
  last_started_at   {ns}.wall_time,
  last_lateness     {ns}.lateness,           -- seconds into its own minute, by its own host's clock
  previous_started_at timestamptz,           -- of the start before, in case the last one did not happen
  previous_lateness double precision,
  schedule          {ns}.short_text,         -- the key is expected to run by it, from expected_since on
  zone              {ns}.short_text,
  expected_shards   {ns}.shard_count,
  starting_deadline {ns}.seconds,
  expected_since    timestamptz,
  forgotten_at      timestamptz,             -- when a person removed what was expected
  forgotten_by      {ns}.short_text,
  shards            {ns}.shard_count not null default 1,
  divisions         text,                    -- on shard 0's row: a line "SHARDS TICK" for each of the key's last eight ticks
  divided_until     {ns}.wall_time,          -- on shard 0's row: the newest instant of an execution of any shard
  prunes            boolean not null default true,    -- whether the next end removes expired rows: more may be left
  unique (key, shard),
  check (num_nonnulls(owner, execution_id, session_lock, acquired_at, heartbeat_at, expires_at) in (0, 6)),
  check (execution_id = newest_id)
) with (fillfactor = 50);

create table {ns}.job_execution (
  execution_id  bigint generated always as identity primary key,
  key_id        integer not null references {ns}.job_key,
  tick          {ns}.tick_name,              -- a UTC instant, a name, or null: no tick
  tick_at       {ns}.wall_time,              -- the instant, null for names
  attempt       {ns}.attempt_number not null,
  owner_attempt {ns}.attempt_number not null,  -- the owner's number; differs if a late record found its number taken
  outcome       text not null check (outcome in
                  ('running', 'succeeded', 'failed', 'timed-out', 'stopped', 'lost', 'not-started', 'unclaimed')),
  cause         text not null check (cause in ('schedule', 'manual', 'takeover', 'retry', 'catch-up')),    -- why it was started
  exit_code     integer check (exit_code between 0 and 255),
  signal        {ns}.signal_number,
  host          {ns}.host_name not null,
  pid           {ns}.natural_number not null,
  user_name     {ns}.short_text not null,
  command       {ns}.long_text not null,
  fired_at      {ns}.wall_time,              -- the firing host's clock
  started_at    {ns}.wall_time not null,
  finished_at   {ns}.wall_time,
  duration      {ns}.seconds,
  lost_at       timestamptz,                 -- when its lease was found expired; it stays when the end comes later
  lost_reason   text check (lost_reason in
                  ('expired', 'released', 'superseded', 'revoked', 'not-renewed', 'guard-killed', 'guard-failed', 'guard-hung')),
  fencing_token {ns}.exact_integer,
  owner         uuid not null,
  note          {ns}.long_text,              -- for people: no program reads it
  shards        {ns}.shard_count not null default 1,
  retries       {ns}.retry_count not null default 0,  -- how many further attempts its tick may have
  retrying      boolean not null default false,   -- it ended, and its owner is to retry it, or has begun to
  request       text check (request in ('stop', 'release')),   -- the last request to its holder, also after its end
  requested_by  {ns}.short_text,             -- USER@HOST
  place         {ns}.place_text,             -- where the next attempt of the tick goes on, in ASCII
  unique (key_id, tick, attempt),
  unique (owner, key_id, owner_attempt),
  check (outcome <> 'running' or finished_at is null),
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
  output       {ns}.output_text not null,
  cut          {ns}.exact_integer not null   -- bytes that came before
);

create table {ns}.skip (
  key_id      integer not null references {ns}.job_key,
  tick        {ns}.tick_name not null,       -- '' for no tick
  host        {ns}.host_name not null,
  reason      {ns}.host_name not null,
  pid         {ns}.natural_number not null,
  fired_at    {ns}.wall_time,
  holder_host {ns}.host_name,
  holder_pid  {ns}.natural_number,
  detail      {ns}.long_text,
  at          {ns}.wall_time not null,       -- of the newest
  count       {ns}.exact_integer not null default 1,
  delivered   text,                          -- the owners of the last eight delivered records
  primary key (key_id, tick, host, reason)
);
create index skip_at on {ns}.skip using brin (at) with (autosummarize = on, pages_per_range = 32);
create index skip_of_key on {ns}.skip (key_id, at);   -- for retention

-- The hosts that fire a key: what the last firing of each told. Each firing that reaches the store updates one row, and
-- no firing of another host or key does, so none waits. Only the primary key is indexed: an update needs no index entry.
-- A foreign key would double what an update costs a new session, domains too.
create table {ns}.key_host (
  key_id     integer not null,
  host       text not null check (octet_length(host) <= 1020),
  seen_at    timestamptz not null,
  presence   text not null check (length(presence) <= 14000),   -- see core/presence.py
  plain_from integer check (plain_from between 0 and 1000000000),   -- the last plain skips of the host, as in plain_skips
  plain      integer[] not null check (0 <= all (plain) and cardinality(plain) <= 240),
  primary key (key_id, host)
) with (fillfactor = 50);

-- The plain skips of a host (core/decision.py), up to 240 of 2,048 minutes in a row: the holder of each is the first attempt
-- of its tick, so there is only one number for each. Its 31 bits: the minute of the tick since plain_from (11), whether the
-- reason is `done` and not `held` (1), and milliseconds since 20 s before the time of the tick (19).
create table {ns}.plain_skips (
  key_id      integer not null,
  host        text not null,
  plain_from  integer not null,              -- in minutes since the epoch
  plain_until integer not null,              -- the newest tick
  plain       integer[] not null
);
create index plain_skips_of_key on {ns}.plain_skips (key_id, plain_until, plain_from);
create index plain_skips_until on {ns}.plain_skips using brin (plain_until) with (autosummarize = on, pages_per_range = 32);

-- The pauses of keys, and the drains of hosts. One that has ended is over (both times are the epoch), and one of the past.
create table {ns}.pause (
  kind       text not null check (kind in ('key', 'host')),
  name       {ns}.host_name not null,        -- the key, '*' for all keys, or the drained host
  until      {ns}.wall_time,
  reason     {ns}.short_text,
  author     {ns}.short_text not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  past       text not null default '',       -- the last 45 that are over: `SINCE-UNTIL ` of each, in whole seconds
  primary key (kind, name)
);
