-- The schema of oncecron, PostgreSQL 13 or newer.  {ns} stands for the quoted name of the schema (the namespace).
-- Run in one transaction behind an advisory lock.  Every function is qualified by hand and carries a version: hosts
-- with the next release call claim_v2 beside this one, so that they can be upgraded in any order.

create schema if not exists {ns};
comment on schema {ns} is 'oncecron: leases and the job-execution log';

create table {ns}.meta (
  version    integer not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp()
);
insert into {ns}.meta (version) values (1);

-- One row per (key, shard).  Its oid and key_id are the two halves of the session advisory lock.  A claim locks the row, a
-- takeover raises the fence, assert_fence() shares it; heartbeats, ends, pauses and stops never touch it.
create table {ns}.job_key (
  key_id            integer generated always as identity primary key,
  key               text not null,
  shard             integer not null default 0,
  fence             bigint not null default 0,
  high_water        timestamptz,
  last_execution_id bigint,
  last_started_at   timestamptz,
  last_lateness     double precision,        -- seconds into its own minute, by its own host's clock
  previous_started_at timestamptz,           -- of the start before, should the last one prove to be none
  previous_lateness double precision,
  schedule          text,
  zone              text,
  shards            integer not null default 1,
  ttl               interval,
  command_digest    text,
  unique (key, shard)
);

create table {ns}.job_execution (
  execution_id  bigint generated always as identity primary key,
  key_id        integer not null references {ns}.job_key,
  tick          text,                        -- a UTC instant, a name, or null: no tick
  tick_at       timestamptz,                 -- the instant, null for names
  attempt       integer not null check (attempt > 0),
  owner_attempt integer not null,            -- as its owner counted it; differs where a late record found its number taken
  outcome       text not null check (outcome in
                  ('running', 'succeeded', 'failed', 'timed-out', 'stopped', 'lost', 'not-started', 'unclaimed')),
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
  lost_at       timestamptz,                 -- when its lease was found to be over, whatever it was told to be since
  fencing_token bigint,
  owner         uuid not null,
  note          text,
  unique (key_id, tick, attempt),
  unique (owner, key_id, owner_attempt)
);
create unique index job_execution_one_running on {ns}.job_execution (key_id) where outcome = 'running';
-- Names are counted by retention. Together the two give the last executions of any key, also of one that rarely runs or has
-- stopped running: by the primary key that took 4.8 s at a million rows, so 0.2 ms, for 6 % more disk.
create index job_execution_names on {ns}.job_execution (key_id, execution_id) where tick is not null and tick_at is null;
create index job_execution_others on {ns}.job_execution (key_id, execution_id) where tick is null or tick_at is not null;
create index job_execution_started on {ns}.job_execution using brin (started_at) with (autosummarize = on, pages_per_range = 32);

-- The lease: one per key by its primary key.  Updated at every heartbeat, hence the free space in its pages.
create table {ns}.lease (
  key_id        integer primary key references {ns}.job_key,
  execution_id  bigint not null unique references {ns}.job_execution,
  owner         uuid not null,
  ttl           interval not null,
  session_lock  boolean not null,            -- false behind a transaction pooler: the row alone
  backend_pid   integer,
  backend_start timestamptz,
  acquired_at   timestamptz not null,
  heartbeat_at  timestamptz not null,
  expires_at    timestamptz not null
) with (fillfactor = 50);

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
  delivered   text,                          -- owners of the last eight that were told late or for the log alone
  primary key (key_id, tick, host, reason)
);
create index skip_at on {ns}.skip using brin (at) with (autosummarize = on, pages_per_range = 32);

create table {ns}.pause (
  key        text primary key,               -- '*' for all
  until      timestamptz,
  reason     text,
  author     text not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp()
);

create table {ns}.drain (
  host       text primary key,               -- claims nothing new
  author     text not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp()
);

create type {ns}.answer as (
  answer        text,     -- lease | refused | again | clocks
  reason        text,     -- of a refusal, or why to ask again
  execution_id  bigint,
  attempt       integer,
  fencing_token bigint,
  started_at    double precision,
  locked        boolean,
  holder_host   text,
  holder_pid    integer,
  holder_user   text,
  holder_since  double precision,
  detail        text,
  ends_in       double precision,
  after         double precision,
  watched       text,
  backend_pid   integer,
  backend_start text
);

create function {ns}.epoch(timestamptz) returns double precision
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$ select extract(epoch from $1)::float8 $$;

create function {ns}.key_id_v1(p_key text, p_shard integer) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id integer;
begin
  -- SELECT first: an INSERT that conflicts burns an identity value at every firing.
  select k.key_id into v_id from {ns}.job_key k where k.key = p_key and k.shard = p_shard;
  if v_id is null then
    insert into {ns}.job_key (key, shard) values (p_key, p_shard) on conflict (key, shard) do nothing;
    select k.key_id into strict v_id from {ns}.job_key k where k.key = p_key and k.shard = p_shard;
  end if;
  return v_id;
end $$;

-- 1. Paused or drained; null if neither. The key's own pause before that of all keys.
create function {ns}.gate_v1(p_key text, p_host text) returns {ns}.answer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  a {ns}.answer;
  p {ns}.pause;
  d {ns}.drain;
begin
  select x.* into p from {ns}.pause x
    where x.key in (p_key, '*') and (x.until is null or x.until > clock_timestamp()) order by x.key = '*' limit 1;
  if found then
    a.answer := 'refused'; a.reason := 'paused'; a.holder_since := {ns}.epoch(p.created_at);
    a.detail := concat_ws(': ', 'by ' || p.author, p.reason);
    return a;
  end if;
  select x.* into d from {ns}.drain x where x.host = p_host;
  if found then
    a.answer := 'refused'; a.reason := 'drained'; a.holder_since := {ns}.epoch(d.created_at); a.detail := 'by ' || d.author;
  end if;
  return a;
end $$;

-- The claim, step by step as store.py tells it.  Changes nothing unless it grants, declares a lost execution lost or cuts
-- a lease that ends too far in the future.
create function {ns}.decide_v1(
  p_key text, p_shard integer, p_tick text, p_tick_at timestamptz, p_rule text, p_owner uuid,
  p_host text, p_pid integer, p_user text, p_command text, p_fired_at timestamptz, p_host_now timestamptz,
  p_ttl interval, p_min_gap interval, p_starting_deadline interval, p_again boolean, p_schedule text, p_zone text,
  p_max_skew interval, p_session boolean, p_backend_start timestamptz, p_watched timestamptz, p_alone boolean
) returns {ns}.answer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  a       {ns}.answer;
  k       {ns}.job_key;
  l       {ns}.lease;
  e       {ns}.job_execution;   -- of the lease
  t       {ns}.job_execution;   -- of the tick
  v_now   timestamptz := clock_timestamp();
  v_id    integer;
  v_class integer := '{ns}.job_key'::regclass::oid::int4;
  v_got   boolean := false;
  v_ago   interval;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'OC002', message = 'a claim needs the isolation level read committed';
  end if;
  v_id := {ns}.key_id_v1(p_key, p_shard);

  -- 0. A known owner: the answer to its claim was lost.
  select x.* into t from {ns}.job_execution x
    where x.owner = p_owner and x.key_id = v_id order by x.owner_attempt desc limit 1;
  if found then
    update {ns}.lease x
       set heartbeat_at = v_now, expires_at = v_now + x.ttl, session_lock = p_session,
           backend_pid = pg_backend_pid(), backend_start = p_backend_start
     where x.key_id = v_id and x.owner = p_owner and x.execution_id = t.execution_id and t.outcome = 'running';
    if found then
      a.answer := 'lease'; a.execution_id := t.execution_id; a.attempt := t.attempt;
      a.fencing_token := t.fencing_token; a.started_at := {ns}.epoch(t.started_at);
      a.locked := p_session and {ns}.take_lock_v1(v_id);
    else
      a.answer := 'refused'; a.reason := 'done'; a.holder_host := t.host; a.holder_pid := t.pid; a.holder_user := t.user_name;
      a.holder_since := {ns}.epoch(t.started_at); a.detail := t.outcome;
    end if;
    return a;
  end if;

  -- 1. Paused or drained; clocks too far apart to name a tick.
  a := {ns}.gate_v1(p_key, p_host);
  if a.answer is not null then
    return a;
  end if;
  if p_rule in ('schedule', 'minute') and (p_host_now - v_now > p_max_skew or v_now - p_host_now > p_max_skew)
     or p_rule = 'name' and p_tick_at > v_now + p_max_skew then
    a.answer := 'clocks';
    a.ends_in := extract(epoch from case p_rule when 'name' then p_tick_at else p_host_now end - v_now);
    return a;
  end if;

  for v_pass in 1 .. 2 loop
    if v_pass = 2 then
      -- 3. The session lock, never waiting.
      if p_session and not p_alone then
        v_got := pg_try_advisory_lock(v_class, v_id);
        if not v_got then
          select x.* into l from {ns}.lease x where x.key_id = v_id;
          if not found then
            a.answer := 'again'; a.reason := 'contended'; a.after := 0.05; a.ends_in := 0;
            return a;
          elsif l.expires_at <= clock_timestamp() and l.heartbeat_at is distinct from p_watched then
            select x.* into e from {ns}.job_execution x where x.execution_id = l.execution_id;
            a.answer := 'again'; a.reason := 'stale'; a.after := extract(epoch from l.ttl) / 3; a.ends_in := 0;
            a.watched := l.heartbeat_at::text; a.backend_pid := l.backend_pid; a.backend_start := l.backend_start::text;
            a.holder_host := e.host; a.holder_pid := e.pid; a.holder_user := e.user_name;
            a.holder_since := {ns}.epoch(e.started_at);
            return a;
          end if;   -- renewed meanwhile: the second look says held; or watched for long enough: the row decides
        end if;
      end if;
      -- 4. The lock of the key's row.
      perform set_config('lock_timeout', (extract(epoch from least(interval '2 seconds', p_ttl / 12)) * 1000)::int::text, true);
      perform 1 from {ns}.job_key x where x.key_id = v_id for update;
      perform set_config('lock_timeout', '0', true);
      -- 1 again: whoever paused meanwhile has been told that nothing starts any more.
      a := {ns}.gate_v1(p_key, p_host);
      exit when a.answer is not null;
    end if;

    -- 2 and again under the lock: the lease,
    v_now := clock_timestamp();
    select x.* into k from {ns}.job_key x where x.key_id = v_id;
    select x.* into l from {ns}.lease x where x.key_id = v_id;
    if l.owner = p_owner then       -- committed since step 0, by a session that we gave up: asked again, step 0 knows it
      a.answer := 'again'; a.reason := 'contended'; a.after := 0; a.ends_in := 0;
      exit;
    end if;
    if found and l.expires_at > v_now + l.ttl then
      update {ns}.lease x set expires_at = v_now + x.ttl, heartbeat_at = least(x.heartbeat_at, v_now)
        where x.key_id = v_id and x.expires_at > v_now + x.ttl returning x.* into l;
    end if;
    if l.expires_at > v_now then
      select x.* into e from {ns}.job_execution x where x.execution_id = l.execution_id;
      a.holder_host := e.host; a.holder_pid := e.pid; a.holder_user := e.user_name; a.holder_since := {ns}.epoch(e.started_at);
      a.ends_in := extract(epoch from l.expires_at - v_now);
      if (e.tick is distinct from p_tick or p_tick is null) and (
           v_now - l.heartbeat_at > l.ttl / 3
           or l.session_lock and p_session and (v_got or not {ns}.lock_taken_v1(v_id))) then
        a.answer := 'again'; a.reason := 'orphaned'; a.after := least(a.ends_in, greatest(1, extract(epoch from l.ttl) / 6));
      else
        a.answer := 'refused'; a.reason := 'held';
      end if;
      exit;
    end if;

    -- 5. an expired lease, or an execution without one, taken away,
    if v_pass = 2 then
      delete from {ns}.lease x where x.key_id = v_id and x.expires_at <= v_now;
      if l.key_id is not null and not found then     -- renewed between the look and the delete
        a.answer := 'again'; a.reason := 'contended'; a.after := 0.05; a.ends_in := 0;
        exit;
      end if;
      update {ns}.job_execution x
         set outcome = 'lost', lost_at = v_now, note = concat_ws('; ', x.note, 'lease ended '
               || to_char(coalesce(l.expires_at, v_now) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ', declared lost by ' || p_host)
       where x.key_id = v_id and x.outcome = 'running';
      if found then
        update {ns}.job_key x set fence = greatest(x.fence + 1, ({ns}.epoch(v_now) * 1e6)::bigint)
          where x.key_id = v_id returning x.* into k;
      end if;
    end if;

    -- the tick: its newest attempt that may have started, or if none did the newest,
    select x.* into t from {ns}.job_execution x
      where x.key_id = v_id and x.tick = p_tick order by x.outcome = 'not-started', x.attempt desc limit 1;
    if not p_again and t.outcome not in ('running', 'not-started') then
      a.answer := 'refused'; a.reason := 'done'; a.holder_host := t.host; a.holder_pid := t.pid; a.holder_user := t.user_name;
      a.holder_since := {ns}.epoch(t.started_at); a.detail := t.outcome;
      exit;
    end if;
    if not p_again and coalesce(t.outcome, 'not-started') = 'not-started' and (p_tick_at < k.high_water
         -- An attempt that retention has forgotten may have started.
         or p_tick_at = k.high_water and coalesce((
              select max(x.attempt) > count(*) from {ns}.job_execution x where x.key_id = v_id and x.tick = p_tick), true)) then
      a.answer := 'refused'; a.reason := 'passed';
      a.detail := 'by tick ' || to_char(k.high_water at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"');
      exit;
    end if;

    -- 6. the gap and the deadline.
    v_ago := case when k.last_started_at < v_now then v_now - k.last_started_at
                  when k.last_started_at is not null then interval '0' end;
    if not p_again and v_ago < p_min_gap
       and (p_rule = 'none' or k.last_lateness > 60 - extract(epoch from p_min_gap)) then
      select x.* into e from {ns}.job_execution x where x.execution_id = k.last_execution_id;
      a.answer := 'refused'; a.reason := 'recent'; a.holder_host := e.host; a.holder_pid := e.pid; a.holder_user := e.user_name;
      a.holder_since := {ns}.epoch(k.last_started_at);
      exit;
    end if;
    if v_now - p_tick_at > p_starting_deadline then
      a.answer := 'refused'; a.reason := 'late';
      exit;
    end if;
  end loop;

  if a.answer is not null then
    if v_got then perform pg_advisory_unlock(v_class, v_id); end if;
    return a;
  end if;

  -- 7. Granted.
  a.answer := 'lease';
  a.attempt := 1 + coalesce((select max(x.attempt) from {ns}.job_execution x where x.key_id = v_id and x.tick = p_tick), 0);
  a.fencing_token := greatest(k.fence + 1, ({ns}.epoch(v_now) * 1e6)::bigint);
  a.started_at := {ns}.epoch(v_now);
  insert into {ns}.job_execution
      (key_id, tick, tick_at, attempt, owner_attempt, outcome, host, pid, user_name, command, fired_at, started_at, fencing_token, owner,
       note)
    values (v_id, p_tick, p_tick_at, a.attempt, a.attempt, 'running', p_host, p_pid, p_user, p_command, p_fired_at, v_now, a.fencing_token, p_owner,
            case when p_again and a.attempt > 1 then 'by --again' end)
    returning execution_id into a.execution_id;
  update {ns}.job_key
     set fence = a.fencing_token, high_water = greatest(high_water, p_tick_at), last_execution_id = a.execution_id,
         last_started_at = v_now, last_lateness = mod({ns}.epoch(p_fired_at)::numeric, 60),
         previous_started_at = last_started_at, previous_lateness = last_lateness,
         schedule = p_schedule, zone = p_zone, ttl = p_ttl,
         command_digest = left(encode(sha256(convert_to(p_command, 'UTF8')), 'hex'), 16)
   where key_id = v_id;
  a.locked := v_got or p_session and p_alone and {ns}.take_lock_v1(v_id);
  insert into {ns}.lease
      (key_id, execution_id, owner, ttl, session_lock, backend_pid, backend_start, acquired_at, heartbeat_at, expires_at)
    values (v_id, a.execution_id, p_owner, p_ttl, p_session, pg_backend_pid(), p_backend_start, v_now, v_now, v_now + p_ttl);
  return a;
exception
  when lock_not_available then
    if v_got then perform pg_advisory_unlock(v_class, v_id); end if;
    a := null;
    a.answer := 'again'; a.reason := 'fenced'; a.after := 0; a.ends_in := 0;
    -- A FOR SHARE lock of one transaction stands in xmax; its backend holds that transaction id's own lock.
    select b.pid into a.backend_pid from {ns}.job_key x
      join pg_locks b on b.locktype = 'transactionid' and b.granted and b.transactionid = x.xmax
      where x.key_id = v_id;
    return a;
  when query_canceled or others then      -- a session lock survives the abort of its transaction
    if v_got then perform pg_advisory_unlock(v_class, v_id); end if;
    raise;
end $$;

-- Whether this session has, or now gets, the key's session lock; never taken twice.
create function {ns}.take_lock_v1(p_key_id integer) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from pg_locks x
     where x.locktype = 'advisory' and x.pid = pg_backend_pid() and x.objsubid = 2 and x.granted
       and x.classid = '{ns}.job_key'::regclass and x.objid = p_key_id::oid)
    or pg_try_advisory_lock('{ns}.job_key'::regclass::oid::int4, p_key_id)
$$;

create function {ns}.lock_taken_v1(p_key_id integer) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from pg_locks x
     where x.locktype = 'advisory' and x.objsubid = 2 and x.granted
       and x.database = (select d.oid from pg_database d where d.datname = current_database())
       and x.classid = '{ns}.job_key'::regclass and x.objid = p_key_id::oid)
$$;

-- A refusal is a row per (key, tick, host, reason) with a count.  It never waits for the disk, unless it is delivered: then
-- nobody else has it any more, and it is known by its firing's owner.
create function {ns}.skip_v1(
  p_key text, p_shard integer, p_tick text, p_host text, p_reason text, p_pid integer,
  p_fired_at double precision, p_holder_host text, p_holder_pid integer, p_detail text, p_at double precision, p_count bigint,
  p_delivered_of text
) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_at is null then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  insert into {ns}.skip as s (key_id, tick, host, reason, pid, fired_at, holder_host, holder_pid, detail, at, count, delivered)
    values ({ns}.key_id_v1(p_key, p_shard), coalesce(p_tick, ''), p_host, p_reason, p_pid, to_timestamp(p_fired_at),
            p_holder_host, p_holder_pid, p_detail, coalesce(to_timestamp(p_at), clock_timestamp()), p_count, p_delivered_of)
    on conflict (key_id, tick, host, reason) do update
      set count = s.count + excluded.count, at = greatest(s.at, excluded.at), pid = excluded.pid, fired_at = excluded.fired_at,
          holder_host = excluded.holder_host, holder_pid = excluded.holder_pid, detail = excluded.detail,
          delivered = right(concat_ws(' ', s.delivered, excluded.delivered), 8 * 37 - 1)   -- a uuid has 36 characters
      where (strpos(s.delivered, excluded.delivered) > 0) is not true;
end $$;

-- What a firing calls: the decision, the skip, and, where the backend is the client's own (libpq's backend pid is
-- this one: no transaction pooler in between), the settings that free the lock soon after packets stop.
create function {ns}.claim_v1(
  p_key text, p_shard integer, p_tick text, p_tick_at double precision, p_rule text, p_owner uuid,
  p_host text, p_pid integer, p_user text, p_command text, p_fired_at double precision, p_host_now double precision,
  p_ttl double precision, p_min_gap double precision, p_starting_deadline double precision, p_again boolean,
  p_schedule text, p_zone text, p_max_skew double precision, p_client_backend integer, p_backend_start timestamptz,
  p_watched timestamptz, p_alone boolean
) returns {ns}.answer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  a {ns}.answer;
  v_session boolean := p_client_backend is not distinct from pg_backend_pid();
begin
  if pg_is_in_recovery() then     -- a standby grants advisory locks that its primary has already given away
    raise exception using errcode = 'OC003', message = 'the server is a hot standby';
  end if;
  if v_session then
    perform set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
            set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '25000', false);
    if current_setting('server_version_num')::int >= 140000 then
      perform set_config('client_connection_check_interval', '5000', false),
              set_config('idle_session_timeout', (greatest(600, 10 * p_ttl) * 1000)::bigint::text, false);
    end if;
  end if;
  a := {ns}.decide_v1(p_key, p_shard, p_tick, to_timestamp(p_tick_at), p_rule, p_owner, p_host, p_pid, p_user, p_command,
    to_timestamp(p_fired_at), to_timestamp(p_host_now), make_interval(secs => p_ttl), make_interval(secs => p_min_gap),
    make_interval(secs => p_starting_deadline), p_again, p_schedule, p_zone, make_interval(secs => p_max_skew), v_session,
    p_backend_start, p_watched, p_alone);
  if a.answer = 'refused' then
    begin
      perform {ns}.skip_v1(p_key, p_shard, p_tick, p_host, a.reason, p_pid, p_fired_at, a.holder_host, a.holder_pid,
        a.detail, null, 1, null);
    exception when others then      -- the answer stands all the same
      raise log 'oncecron: skip of key % not recorded: %', p_key, sqlerrm;
    end;
  end if;
  return a;
end $$;

-- A heartbeat: compare-and-set on (execution, owner).  Null: lost for good.  It sets the expiry, it never maxes it.
-- On a new backend (a re-adoption) it also takes the session lock again, when it is free.
create function {ns}.renew_v1(
  p_execution_id bigint, p_owner uuid, p_locked boolean, p_client_backend integer, p_backend_start timestamptz
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_key_id integer;
  v_session boolean := p_client_backend is not distinct from pg_backend_pid();
begin
  update {ns}.lease x
     set heartbeat_at = clock_timestamp(), expires_at = clock_timestamp() + x.ttl, session_lock = v_session,
         backend_pid = pg_backend_pid(), backend_start = coalesce(p_backend_start, x.backend_start)
   where x.execution_id = p_execution_id and x.owner = p_owner
  returning x.key_id into v_key_id;
  if v_key_id is null then return null; end if;
  return p_locked or v_session and {ns}.take_lock_v1(v_key_id);
end $$;

-- The store lost the execution of a living holder (a failover to a standby that had not got it): it is put back with
-- its old token, but only if nobody has claimed the key since.
create function {ns}.adopt_v1(
  p_key text, p_shard integer, p_tick text, p_tick_at double precision, p_attempt integer, p_owner uuid, p_host text, p_pid integer,
  p_user text, p_command text, p_fired_at double precision, p_started_at double precision, p_token bigint, p_ttl double precision,
  p_client_backend integer, p_backend_start timestamptz
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  k {ns}.job_key;
  v_id integer := {ns}.key_id_v1(p_key, p_shard);
  v_execution bigint;
  v_session boolean := p_client_backend is not distinct from pg_backend_pid();
begin
  perform set_config('lock_timeout', '2s', true);
  select x.* into strict k from {ns}.job_key x where x.key_id = v_id for update;
  if k.fence >= p_token or exists (select from {ns}.job_execution x where x.owner = p_owner and x.key_id = k.key_id)
     or exists (select from {ns}.lease x where x.key_id = k.key_id) then
    return null;
  end if;
  update {ns}.job_execution x set outcome = 'lost', lost_at = clock_timestamp(), note = concat_ws('; ', x.note, 'running without a lease')
    where x.key_id = k.key_id and x.outcome = 'running';
  insert into {ns}.job_execution
      (key_id, tick, tick_at, attempt, owner_attempt, outcome, host, pid, user_name, command, fired_at, started_at, fencing_token,
       owner, note)
    values (k.key_id, p_tick, to_timestamp(p_tick_at), p_attempt, p_attempt, 'running', p_host, p_pid, p_user, p_command, to_timestamp(p_fired_at),
            to_timestamp(p_started_at), p_token, p_owner, 'put back: the store had lost it')
    returning execution_id into v_execution;
  update {ns}.job_key x
     set fence = p_token, high_water = greatest(x.high_water, to_timestamp(p_tick_at)), last_execution_id = v_execution,
         last_started_at = to_timestamp(p_started_at)
   where x.key_id = k.key_id;
  insert into {ns}.lease
      (key_id, execution_id, owner, ttl, session_lock, backend_pid, backend_start, acquired_at, heartbeat_at, expires_at)
    values (k.key_id, v_execution, p_owner, make_interval(secs => p_ttl), v_session, pg_backend_pid(), p_backend_start,
            clock_timestamp(), clock_timestamp(), clock_timestamp() + make_interval(secs => p_ttl));
  if v_session then perform {ns}.take_lock_v1(k.key_id); end if;
  return v_execution;
exception when unique_violation then
  return null;
end $$;

-- A start that was none no longer stands between others.
create function {ns}.take_back_start_v1(p_execution_id bigint) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  update {ns}.job_key x
     set last_started_at = x.previous_started_at, last_lateness = x.previous_lateness, last_execution_id = null
   where x.last_execution_id = p_execution_id
$$;

-- The end.  Never unlocks the session lock: that would take effect before this commits; closing the session does it.
create function {ns}.finish_v1(
  p_execution_id bigint, p_owner uuid, p_outcome text, p_exit_code integer, p_signal integer, p_duration double precision,
  p_note text, p_keep_executions double precision, p_keep_skips double precision
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_key_id integer;
begin
  delete from {ns}.lease x where x.execution_id = p_execution_id and x.owner = p_owner returning x.key_id into v_key_id;
  update {ns}.job_execution x
     set outcome = p_outcome, exit_code = p_exit_code, signal = p_signal, duration = p_duration, finished_at = clock_timestamp(),
         lost_at = case when v_key_id is null then coalesce(x.lost_at, clock_timestamp()) end,
         note = nullif(concat_ws('; ', x.note, p_note, case when v_key_id is null then 'ended after its lease was lost' end), '')
   where x.execution_id = p_execution_id and x.owner = p_owner and (x.outcome = 'running' or x.outcome = 'lost' and x.duration is null);
  if found and p_outcome = 'not-started' then perform {ns}.take_back_start_v1(p_execution_id); end if;
  begin
    perform {ns}.expire_v1(v_key_id, make_interval(secs => p_keep_executions), make_interval(secs => p_keep_skips), 100, 1000);
  exception when others then      -- never at the cost of the end's record
    raise log 'oncecron: retention: %', sqlerrm;
  end;
  -- Said again (its answer was lost), it has the same answer.
  return exists (select from {ns}.job_execution x where x.execution_id = p_execution_id and x.owner = p_owner and x.lost_at is null);
end $$;

-- Retention: remove at most p_most expired executions and as many skips.  Names stay unique in the log, so the newest
-- p_names of a key are kept however old they are; only the given key's names are looked at.  now(), not clock_timestamp(),
-- which is volatile and so uses no index, and plans for the given ages: else every finish reads the whole log (500 ms at a
-- million rows, 1 ms so).
create function {ns}.expire_v1(
  p_key_id integer, p_keep_executions interval, p_keep_skips interval, p_most bigint, p_names integer,
  out executions bigint, out skips bigint
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
  v_names bigint;
begin
  with gone as (
    delete from {ns}.job_execution x where x.execution_id in (
      select y.execution_id from {ns}.job_execution y
       where y.started_at < now() - p_keep_executions and y.outcome <> 'running' and (y.tick is null or y.tick_at is not null)
       limit p_most for update skip locked)
    returning 1)
  select count(*) into executions from gone;
  with gone as (
    delete from {ns}.skip x where x.ctid in (
      select y.ctid from {ns}.skip y where y.at < now() - p_keep_skips limit p_most for update skip locked)
    returning 1)
  select count(*) into skips from gone;
  delete from {ns}.pause x where x.key in (select y.key from {ns}.pause y where y.until <= now() for update skip locked);
  select y.execution_id into v_names from {ns}.job_execution y
    where y.key_id = p_key_id and y.tick is not null and y.tick_at is null order by y.execution_id desc offset p_names limit 1;
  if v_names is not null then
    with gone as (
      delete from {ns}.job_execution x where x.execution_id in (
        select y.execution_id from {ns}.job_execution y
         where y.key_id = p_key_id and y.tick is not null and y.tick_at is null and y.execution_id <= v_names
           and y.started_at < now() - p_keep_executions and y.outcome <> 'running'
         order by y.execution_id limit p_most for update skip locked)
      returning 1)
    select executions + count(*) into executions from gone;
  end if;
end $$;

-- A record, told late or to the log of another store: idempotent by (owner, attempt), turns `running` and `lost` into what
-- really happened, releases only its own lease, inserts what this store never saw, never fails on a conflict.  With ages it
-- also removes a few expired rows, as an end does.
create function {ns}.deliver_v1(p jsonb, p_keep_executions double precision, p_keep_skips double precision) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  e {ns}.job_execution;
  v_attempt integer;
  v_fence bigint;
  v_id integer := {ns}.key_id_v1(p ->> 'key', (p ->> 'shard')::int);
  v_late text := case when (p ->> 'late')::boolean then 'recorded later' end;
  v_note text := p ->> 'note';
  v_again text := case when (p ->> 'again')::boolean and (p ->> 'attempt')::int > 1 then 'by --again' end;
  v_outcome text := p ->> 'outcome';
  v_tick text := p ->> 'tick';
  v_token bigint := (p ->> 'fencing_token')::bigint;
  v_unfinished constant text := 'its end was not recorded';
begin
  if p ->> 'kind' = 'skip' then
    perform {ns}.skip_v1(p ->> 'key', (p ->> 'shard')::int, v_tick, p ->> 'host', p ->> 'reason', (p ->> 'pid')::int,
      (p ->> 'fired_at')::float8, p ->> 'holder_host', (p ->> 'holder_pid')::int, p ->> 'detail',
      (p ->> 'at')::float8, coalesce((p ->> 'count')::bigint, 1), p ->> 'owner');
    return;
  end if;
  if v_outcome <> 'running' then
    delete from {ns}.lease x where x.key_id = v_id and x.owner = (p ->> 'owner')::uuid;
    begin
      perform {ns}.expire_v1(v_id, make_interval(secs => p_keep_executions), make_interval(secs => p_keep_skips), 100, 1000)
        where p_keep_executions is not null;
    exception when others then      -- never at the cost of the record
      raise log 'oncecron: retention: %', sqlerrm;
    end;
  end if;
  -- By the number that its owner gave it; one that gave up before it knew a number means its newest.
  select x.* into e from {ns}.job_execution x
    where x.owner = (p ->> 'owner')::uuid and x.key_id = v_id
      and x.owner_attempt = coalesce((p ->> 'attempt')::int, x.owner_attempt)
    order by x.owner_attempt desc limit 1 for update;
  if found then
    if v_outcome <> 'running' and (e.outcome = 'running' or e.outcome = 'lost' and e.duration is null) then
      update {ns}.job_execution x
         set outcome = v_outcome, exit_code = (p ->> 'exit_code')::int, signal = (p ->> 'signal')::int,
             duration = (p ->> 'duration')::float8, finished_at = to_timestamp((p ->> 'finished_at')::float8),
             note = nullif(concat_ws('; ', x.note, v_note, v_late), '')
       where x.execution_id = e.execution_id;
      if v_outcome = 'not-started' then perform {ns}.take_back_start_v1(e.execution_id); end if;
    end if;
    return;
  end if;
  if v_outcome = 'not-started' and v_token is null then return; end if;
  -- A higher token: the key has passed on, and whoever had it before and has no lease here has ended unheard.
  select k.fence into v_fence from {ns}.job_key k where k.key_id = v_id for update;
  if v_token >= v_fence then
    update {ns}.job_execution x
       set outcome = 'lost', lost_at = clock_timestamp(), note = concat_ws('; ', x.note, v_unfinished)
     where x.key_id = v_id and x.outcome = 'running'
       and not exists (select from {ns}.lease l where l.execution_id = x.execution_id);
  end if;
  if v_outcome = 'running' and (
       coalesce(v_token, 0) < v_fence or exists (select from {ns}.job_execution x where x.key_id = v_id and x.outcome = 'running')) then
    v_outcome := 'lost';
    v_note := concat_ws('; ', v_note, v_unfinished);
  end if;
  for v_try in 1 .. 100 loop
    select case when bool_or(x.attempt = (p ->> 'attempt')::int) then max(x.attempt) + 1 else (p ->> 'attempt')::int end
      into v_attempt from {ns}.job_execution x where x.key_id = v_id and x.tick = v_tick;
    begin
      insert into {ns}.job_execution
          (key_id, tick, tick_at, attempt, owner_attempt, outcome, exit_code, signal, host, pid, user_name, command, fired_at,
           started_at, finished_at, duration, fencing_token, owner, note)
        values (v_id, v_tick, to_timestamp((p ->> 'tick_instant')::float8), v_attempt, (p ->> 'attempt')::int, v_outcome,
          (p ->> 'exit_code')::int, (p ->> 'signal')::int, p ->> 'host', (p ->> 'pid')::int, p ->> 'user', p ->> 'command',
          to_timestamp((p ->> 'fired_at')::float8), to_timestamp((p ->> 'started_at')::float8),
          to_timestamp((p ->> 'finished_at')::float8), (p ->> 'duration')::float8, v_token,
          (p ->> 'owner')::uuid, nullif(concat_ws('; ', v_again, v_note, v_late), ''));
      exit;
    exception when unique_violation then
      if exists (select from {ns}.job_execution x
                  where x.owner = (p ->> 'owner')::uuid and x.key_id = v_id and x.owner_attempt = (p ->> 'attempt')::int) then
        return;
      end if;
    end;
  end loop;
  -- It ran, so its tick and those before it have passed; but an instant far ahead would burn all up to it.
  update {ns}.job_key x set fence = greatest(x.fence, v_token) where x.key_id = v_id;
  if v_outcome = 'not-started' then return; end if;
  update {ns}.job_key x
     set high_water = greatest(x.high_water, to_timestamp((p ->> 'tick_instant')::float8))
   where x.key_id = v_id and to_timestamp((p ->> 'tick_instant')::float8) <= clock_timestamp() + interval '5 minutes';
  update {ns}.job_key x
     set last_started_at = to_timestamp((p ->> 'started_at')::float8), last_execution_id = null,
         last_lateness = mod((p ->> 'fired_at')::numeric, 60)
   where x.key_id = v_id and coalesce(x.last_started_at, '-infinity') < to_timestamp((p ->> 'started_at')::float8);
end $$;

-- For a job's own transaction: fails if the token is stale; a takeover waits until the transaction ends.
create function {ns}.assert_fence(p_key text, p_token bigint, p_shard integer default 0) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_fence bigint;
begin
  select k.fence into v_fence from {ns}.job_key k where k.key = p_key and k.shard = p_shard for share;
  if v_fence is distinct from p_token then
    raise exception using errcode = 'OC001',
      message = format('stale fencing token %s for key %s: the present one is %s', p_token, p_key, coalesce(v_fence::text, 'none'));
  end if;
end $$;

create view {ns}.executions as
  select e.execution_id, k.key, k.shard, e.tick, e.attempt, e.outcome, e.exit_code, e.signal, e.host, e.pid, e.user_name as "user",
         e.command, e.started_at, e.finished_at, e.duration, e.fencing_token, e.owner, e.note, e.fired_at, e.tick_at,
         e.key_id, e.lost_at
    from {ns}.job_execution e join {ns}.job_key k using (key_id);

create view {ns}.keys as
  select k.key_id, k.key, k.shard, k.high_water, k.last_execution_id, k.last_started_at, k.schedule, k.zone, k.shards, k.ttl
    from {ns}.job_key k;

create view {ns}.skips as
  select k.key, k.shard, nullif(s.tick, '') as tick, s.reason, s.holder_host, s.holder_pid, s.host, s.pid, s.at, s.count,
         s.fired_at, s.detail
    from {ns}.skip s join {ns}.job_key k using (key_id);

-- Leases and session locks side by side: a row whose lock is gone, a lock whose row says nothing.
create view {ns}.leases as
  select k.key, k.shard, e.tick, l.execution_id, e.attempt,
         case when l.key_id is null then 'stale'
              when l.expires_at <= pg_catalog.clock_timestamp() then 'stale'
              when l.session_lock and b.pid is null then 'orphaned'
              when pg_catalog.clock_timestamp() - l.heartbeat_at > l.ttl / 3 then 'stale'
              else 'held' end as state,
         e.host, e.pid, e.user_name as "user", l.acquired_at, l.heartbeat_at, l.expires_at, e.fencing_token,
         coalesce(b.pid, l.backend_pid) as backend_pid, pg_catalog.host(s.client_addr) as client_address, s.application_name
    from {ns}.job_key k
    left join {ns}.lease l on l.key_id = k.key_id
    left join {ns}.job_execution e on e.execution_id = l.execution_id
    left join pg_catalog.pg_locks b
      on b.locktype = 'advisory' and b.granted and b.objsubid = 2 and b.classid = '{ns}.job_key'::pg_catalog.regclass
     and b.objid = k.key_id::pg_catalog.oid
     and b.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
    left join pg_catalog.pg_stat_activity s on s.pid = coalesce(b.pid, l.backend_pid)
   where l.key_id is not null or b.pid is not null;

-- What refuses firings now: a pause of a key or of all (`*`), or a drained host.
create view {ns}.pauses as
  select p.key, null::text as host, p.author, p.reason, p.created_at as since, p.until
    from {ns}.pause p where p.until is null or p.until > pg_catalog.clock_timestamp()
   union all
  select null, d.host, d.author, null, d.created_at, null from {ns}.drain d;

-- Wait for the claims of a key, or of all, that have passed the gate, and keep others before it until this transaction
-- ends.  The lock conflicts with that of a claim, not with that of a job that checks its fence.  A key that fires for
-- the first time in this very moment has no row to lock yet.
create function {ns}.await_claims_v1(p_key text) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select 1 from {ns}.job_key k where p_key in (k.key, '*') order by k.key_id for key share
$$;

-- What people do.  Each answers with the pause that is there now, if any, and then with the one that was there before.
create function {ns}.pause_v1(p_key text, p_author text, p_reason text, p_seconds double precision) returns setof {ns}.pauses
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $$
declare
  v_before {ns}.pauses;
begin
  perform {ns}.await_claims_v1(p_key);
  perform 1 from {ns}.pause x where x.key = p_key for update;
  select x.* into v_before from {ns}.pauses x where x.key = p_key;
  insert into {ns}.pause (key, until, reason, author)
    values (p_key, clock_timestamp() + make_interval(secs => p_seconds), p_reason, p_author)
    on conflict (key) do update
      set until = excluded.until, reason = excluded.reason, author = excluded.author, created_at = excluded.created_at;
  return query select x.* from {ns}.pauses x where x.key = p_key;
  if v_before.key is not null then return next v_before; end if;
end $$;

create function {ns}.resume_v1(p_key text) returns setof {ns}.pauses
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query select x.* from {ns}.pauses x where x.key = p_key;
  delete from {ns}.pause x where x.key = p_key;
end $$;

create function {ns}.drain_v1(p_host text, p_author text) returns setof {ns}.pauses
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $$
declare
  v_before {ns}.pauses;
begin
  perform {ns}.await_claims_v1('*');
  perform 1 from {ns}.drain x where x.host = p_host for update;
  select x.* into v_before from {ns}.pauses x where x.host = p_host;
  insert into {ns}.drain (host, author) values (p_host, p_author)
    on conflict (host) do update set author = excluded.author, created_at = excluded.created_at;
  return query select x.* from {ns}.pauses x where x.host = p_host;
  if v_before.host is not null then return next v_before; end if;
end $$;

create function {ns}.undrain_v1(p_host text) returns setof {ns}.pauses
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query select x.* from {ns}.pauses x where x.host = p_host;
  delete from {ns}.drain x where x.host = p_host;
end $$;

revoke all on schema {ns} from public;
revoke all on all tables in schema {ns} from public;
revoke all on all functions in schema {ns} from public;
