-- Functions that several others use.

create function {ns}.epoch(timestamptz) returns double precision
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$ select extract(epoch from $1)::float8 $$;

-- A time of a session, to the microsecond, whatever the DateStyle and TimeZone of the sessions that exchange it.
create function {ns}.microseconds(timestamptz) returns bigint
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$ select (date_part('epoch'::text, $1) * float8 '1e6')::bigint $$;

-- The version of a key's row after an update, and the fence after a start or the loss of a lease. By the clock, so that no number
-- comes back after a failover that lost the last ones. Below 2^53 a double is exact.
create function {ns}.next_number(bigint) returns bigint
language sql volatile as $$
  select greatest(($1 + 1)::float8, pg_catalog.date_part('epoch'::text, pg_catalog.clock_timestamp()) * float8 '1e6')::bigint
$$;

-- The later of two times; null counts as none.
create function {ns}.later(timestamptz, timestamptz) returns timestamptz
language sql immutable parallel safe as $$ select case when $1 > $2 then $1 else coalesce($2, $1) end $$;

-- Whether only a clock that was wrong can have written a time (core/clock.py).
create function {ns}.is_ahead(p_time timestamptz) returns boolean
language sql volatile as $$ select p_time > pg_catalog.clock_timestamp() + interval '5 minutes' $$;

-- A key's high-water mark after a start of this instant. An instant far ahead is ignored: every tick before it would be
-- skipped. A claim with one is refused before (core/decision.py). A mark that far ahead counts as a day ago.
create function {ns}.marked(p_mark timestamptz, p_instant timestamptz) returns timestamptz
language sql volatile as $$
  select case when {ns}.is_ahead(p_instant) then p_mark
              when {ns}.is_ahead(p_mark) and p_instant > pg_catalog.clock_timestamp() - interval '1 day' then p_instant
              else {ns}.later(p_mark, p_instant) end
$$;

-- The highest fencing token that this server believes, if it gets it from a client: tokens are its clock in
-- microseconds, or the last one plus one. A day more is the difference between the clocks of two servers.
create function {ns}.believable_token(p_fence bigint) returns bigint
language sql volatile as $$
  select greatest(p_fence, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1e6)::bigint) + 86400 * 1000000::bigint
$$;

-- The row of a key's shard, which is made if there is none. That of shard 0 keeps how many shards the key's ticks have.
-- There are at most {most_keys}: every report reads them all, and a role that may fire can make them up.
create function {ns}.register_v1(p_key text, p_shard integer) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id integer;
begin
  -- SELECT first: an INSERT that conflicts would use up an identity value at every firing.
  select k.key_id into v_id from {ns}.job_key k where k.key::text = p_key and k.shard::int = p_shard;
  if v_id is null then
    if (select count(*) from {ns}.job_key) >= {most_keys} then
      raise exception 'it has {most_keys} keys, and room for no other one; have its owner run `oncecron prune`'
        using errcode = 'program_limit_exceeded';
    end if;
    insert into {ns}.job_key (key, shard) select distinct p_key, x.shard from unnest(array[0, p_shard]) x (shard)
      on conflict (key, shard) do nothing;
    select k.key_id into strict v_id from {ns}.job_key k where k.key = p_key and k.shard = p_shard;
  end if;
  return v_id;
end $$;

-- Whether this session has, or now gets, the key's session lock; it is never taken twice.
create function {ns}.take_lock_v1(p_key_id integer) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from pg_locks x
     where x.locktype = 'advisory' and x.pid = pg_backend_pid() and x.objsubid = 2 and x.granted
       and x.classid = '{ns}.job_key'::regclass::oid and x.objid = p_key_id::oid)
    or pg_try_advisory_lock('{ns}.job_key'::regclass::oid::int4, p_key_id)
$$;

-- The session that holds it.
create function {ns}.lock_holder_v1(p_key_id integer) returns integer
language sql stable set search_path = pg_catalog, pg_temp as $$
  select x.pid from pg_locks x
   where x.locktype = 'advisory' and x.objsubid = 2 and x.granted
     and x.database = (select d.oid from pg_database d where d.datname = current_database())
     and x.classid = '{ns}.job_key'::regclass::oid and x.objid = p_key_id::oid
$$;

-- The session lock of a key as this session finds it. `busy`: its holder is in the middle of a claim or an end, for it
-- is in a transaction, or has just ended. `none`: this is no session of the client's own (p_client_backend), but a
-- pooler's. This session's own lock is another firing's, if that has a valid lease.
create function {ns}.lock_state_v1(p_key_id integer, p_client_backend integer, p_is_valid boolean) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when p_client_backend is distinct from pg_backend_pid() then 'none'
              when h.pid is null or h.pid = pg_backend_pid() and p_is_valid is not true then 'free'
              when h.pid <> pg_backend_pid() and exists (select from pg_locks x where x.locktype = 'virtualxid' and x.pid = h.pid)
                then 'busy'
              else 'taken' end
    from {ns}.lock_holder_v1(p_key_id) h (pid)
$$;

-- That state, if the row still has the version that was read before it: locks are not part of a snapshot. Otherwise the
-- lock is another firing's, which the row does not tell about. VOLATILE: it has a snapshot of its own, a newer one.
create function {ns}.lock_state_of_v1(p_key_id integer, p_version bigint, p_state text) returns text
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select case when p_state = 'none' or k.version = p_version then p_state else 'busy' end
    from {ns}.job_key k where k.key_id = p_key_id
$$;

-- A session whose transaction has checked its fence and has not ended. The row's FOR KEY SHARE lock stands in xmax: a
-- transaction id, or where several share it a multixact id, which looks alike; each backend holds its transaction id's
-- own lock.
create function {ns}.fence_holder_v1(p_key_id integer) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_xmax    xid;
  v_members xid[];
begin
  select x.xmax into v_xmax from {ns}.job_key x where x.key_id = p_key_id;
  begin
    select array_agg(m.xid) into v_members from pg_get_multixact_members(v_xmax) m;
  exception when others then      -- no such transaction: "has not been created yet", "no longer exists"
  end;
  return (select b.pid from pg_locks b join pg_locks r on r.pid = b.pid
           where b.locktype = 'transactionid' and b.granted and b.transactionid = any (v_xmax || v_members)
             and r.locktype = 'relation' and r.relation = '{ns}.job_key'::regclass and r.mode = 'RowShareLock'
           order by b.pid limit 1);
end $$;

-- Makes the connections readable that listen to a part of a key.
create function {ns}.channel_v1(p_key_id integer) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$ select '{ns} ' || p_key_id $$;

-- Only if a session other than the holder's has ever listened: commits that notify wait for each other in the whole
-- cluster, so the keys that nobody waits for would wait for the disk one after another.
create function {ns}.notify_v1(p_key_id integer) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select pg_notify({ns}.channel_v1(x.key_id), '') from {ns}.job_key x where x.key_id = p_key_id and x.listened
$$;

-- A skip is a row per (key, tick, host, reason) with a count. It does not wait for the disk, unless it is delivered
-- from a spool, where it is then removed; a delivered one is identified by its firing's owner, and its host's clock may
-- have been ahead. p_before and p_after: as for see_again_v1(), none if p_after is null. A grant locks the key's row before
-- the host's, so this does too. True: it is written.
create function {ns}.skip_v1(
  p_key text, p_shard integer, p_tick text, p_host text, p_reason text, p_pid integer,
  p_holder_host text, p_holder_pid integer, p_detail text, p_fired_at double precision, p_at double precision default null,
  p_count bigint default 1, p_delivered_of text default null, p_before text default null, p_after text default null
) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  with k as materialized (
    select x.key_id from {ns}.job_key x
     where x.key::text = p_key and x.shard::int = p_shard
       and (p_at is not null or set_config('synchronous_commit', 'off', true) is not null) for key share of x),
  seen as materialized (
    select k.key_id from k
     where case when p_after is null then true
                when p_before is null then {ns}.see_first_v1(k.key_id, p_host, p_after, null, null)
                else {ns}.see_again_v1(k.key_id, p_host, p_before, p_after, null, null) end),
  put as (
    insert into {ns}.skip as s (key_id, tick, host, reason, pid, fired_at, holder_host, holder_pid, detail, at, count, delivered)
      select k.key_id, coalesce(p_tick, ''), p_host, p_reason, p_pid, to_timestamp(p_fired_at),
             p_holder_host, p_holder_pid, p_detail,
             case when to_timestamp(p_at)::{ns}.wall_time::timestamptz < clock_timestamp() then to_timestamp(p_at) else clock_timestamp() end,
             p_count, p_delivered_of from seen k
      on conflict (key_id, tick, host, reason) do update
        set count = case when s.count::bigint < 9007199254740991 - excluded.count::bigint
                         then s.count::bigint + excluded.count::bigint else 9007199254740991 end,
            at = {ns}.later(s.at, excluded.at), pid = excluded.pid, fired_at = excluded.fired_at,
            holder_host = excluded.holder_host, holder_pid = excluded.holder_pid, detail = excluded.detail,
            delivered = right(concat_ws(' ', s.delivered, excluded.delivered), 8 * 37 - 1)   -- a uuid has 36 characters
        where (strpos(s.delivered, excluded.delivered) > 0) is not true)
  select true from seen
$$;

-- Join notes into one text without repetition, of at most 10,000 characters: an end must be recorded, whatever another
-- role has written into the note before.
create function {ns}.joined_v1(variadic p_notes text[]) returns text
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
  v_note text;
  v_text text;
begin
  foreach v_note in array p_notes loop
    if v_note <> '' and (v_text is null or strpos(v_text, v_note) = 0) then
      v_text := concat_ws('; ', v_text, v_note);
    end if;
  end loop;
  return left(v_text, 10000);
end $$;

-- The row tells of its newest and of its running execution what the log tells. A start that did not happen is taken
-- back, so that `recent` ignores it. Every change of the log that is made after the grant ends with this. p_frees: the
-- lease is over.
create function {ns}.settle_v1(p_key_id integer, p_frees boolean) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  with log as materialized (
    select e.outcome, e.retrying, e.requested_by, e.outcome = 'not-started' and j.last_execution_id = e.execution_id as taken_back,
           (select x.execution_id from {ns}.job_execution x where x.key_id = j.key_id and x.outcome = 'running') as running
      from {ns}.job_key j left join {ns}.job_execution e on e.execution_id = j.newest_id
     where j.key_id = p_key_id)
  update {ns}.job_key k
     set version = {ns}.next_number(k.version), running = l.running,
         newest_outcome = coalesce(l.outcome, k.newest_outcome), retrying = coalesce(l.retrying, k.retrying),
         requested_by = coalesce(l.requested_by, k.requested_by),
         last_execution_id = case when l.taken_back is not true then k.last_execution_id end,
         last_started_at = case when l.taken_back then k.previous_started_at else k.last_started_at end,
         last_lateness = case when l.taken_back then k.previous_lateness else k.last_lateness end,
         owner = case when not p_frees then k.owner end,
         execution_id = case when not p_frees then k.execution_id end,
         session_lock = case when not p_frees then k.session_lock end,
         backend_pid = case when not p_frees then k.backend_pid end,
         backend_start = case when not p_frees then k.backend_start end,
         acquired_at = case when not p_frees then k.acquired_at end,
         heartbeat_at = case when not p_frees then k.heartbeat_at end,
         expires_at = case when not p_frees then k.expires_at end,
         request_kind = case when not p_frees then k.request_kind end,
         request_author = case when not p_frees then k.request_author end,
         request_signal = case when not p_frees then k.request_signal end,
         request_grace = case when not p_frees then k.request_grace end,
         request_acknowledged_at = case when not p_frees then k.request_acknowledged_at end
    from log l
   where k.key_id = p_key_id
$$;

-- The lines "SHARDS TICK" of shard 0's row with this tick: the last eight.
create function {ns}.divided(p_divisions text, p_shards integer, p_tick text) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select case when p_tick is null or l.line = any (l.lines) then p_divisions
              else array_to_string((array_append(l.lines, l.line))[greatest(1, cardinality(l.lines) - 6):], e'\n') end
    from (select coalesce(string_to_array(p_divisions, e'\n'), '{}') as lines, concat_ws(' ', p_shards, p_tick) as line) l
$$;

-- Another shard, or a record that was delivered, may have found out how many shards a tick has.
create function {ns}.divide_v1(p_key text, p_tick text, p_tick_at timestamptz, p_shards integer) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  update {ns}.job_key d
     set version = {ns}.next_number(d.version), divided_until = greatest(d.divided_until, p_tick_at),
         divisions = {ns}.divided(d.divisions, p_shards, p_tick)
   where d.key = p_key and d.shard = 0 and d.divisions is distinct from {ns}.divided(d.divisions, p_shards, p_tick)
$$;

-- The lease of a key is over, if it has one: its execution is lost, and so is one that waits for its next attempt; the
-- fencing token rises. The caller has locked the row FOR UPDATE.
create function {ns}.lose_v1(p_key_id integer, p_reason text, p_note text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  update {ns}.job_execution x
     set outcome = 'lost', lost_at = v_now, lost_reason = p_reason, note = {ns}.joined_v1(x.note, p_note)
   where x.key_id = p_key_id and x.outcome = 'running';
  update {ns}.job_execution x
     set lost_at = v_now, lost_reason = p_reason, note = {ns}.joined_v1(x.note, p_note)
    from {ns}.job_key k
   where k.key_id = p_key_id and x.execution_id = k.execution_id and x.retrying and x.lost_at is null;
  update {ns}.job_key k
     set version = {ns}.next_number(k.version), fence = {ns}.next_number(k.fence)
   where k.key_id = p_key_id;
  perform {ns}.settle_v1(p_key_id, true);
end $$;
