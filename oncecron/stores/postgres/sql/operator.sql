-- The views for people, and the functions for operators.

create view {ns}.executions as
  select e.execution_id, k.key, k.shard, e.tick, e.attempt, e.outcome, e.exit_code, e.signal, e.host, e.pid, e.user_name as "user",
         e.command, e.started_at, e.finished_at, e.duration, e.fencing_token,
         -- A digest: with the owner id itself, a reader could end the lease.
         left(encode(sha256(convert_to(e.owner::text, 'UTF8')), 'hex'), 16) as owner, e.note, e.fired_at, e.tick_at,
         e.key_id, e.lost_at, e.shards, e.retries, e.cause, e.lost_reason, e.request, e.requested_by, e.place,
         -- The dead letters: failed, could have been retried, and will not be.
         e.retries > 0 and e.outcome in ('failed', 'timed-out', 'lost')
           and k.execution_id is distinct from e.execution_id
           and not exists (select from {ns}.job_execution n where n.key_id = e.key_id and n.tick = e.tick
                              and n.attempt > e.attempt and n.outcome <> 'not-started')
           and not exists (select from {ns}.job_execution n where e.tick is null and n.owner = e.owner and n.key_id = e.key_id
                              and n.owner_attempt > e.owner_attempt and n.outcome <> 'not-started') as exhausted
    from {ns}.job_execution e join {ns}.job_key k using (key_id);

create view {ns}.outputs as
  select o.execution_id, o.output, o.cut from {ns}.job_output o;

create view {ns}.keys as
  select k.key_id, k.key, k.shard, k.high_water, k.last_execution_id, k.last_started_at, k.shards, k.ttl,
         k.schedule, k.zone, k.expected_shards, k.starting_deadline, k.expected_since, k.forgotten_at, k.forgotten_by
    from {ns}.job_key k;

-- The rows of plain skips: those that are full, and the last one of each host.
create view {ns}.plain_rows as
  select a.key_id, a.host, a.plain_from, a.plain_until, a.plain from {ns}.plain_skips a
  union all
  select h.key_id, h.host, h.plain_from, h.plain_from + (select pg_catalog.max(x) >> 20 from pg_catalog.unnest(h.plain) x), h.plain
    from {ns}.key_host h where h.plain <> '{}';

-- All skips. Of the plain ones, the log of executions has the holder and how the tick ended. What has the type of its domain in one
-- half alone, the server does not look up by an index.
create view {ns}.skips as
  select k.key, k.shard, nullif(s.tick, '') as tick, s.reason::text, s.holder_host, s.holder_pid, s.host::text, s.pid, s.at::timestamptz, s.count,
         s.fired_at, s.detail, s.key_id,
         s.tick::text as tick_name,  -- of the primary key; '' for no tick
         false as plain, null::integer as plain_from, null::integer as plain_until
    from {ns}.skip s join {ns}.job_key k using (key_id)
  union all
  select k.key, k.shard, t.tick, case when s.done = 1 then 'done' else 'held' end, e.host, e.pid, p.host, null,
         pg_catalog.to_timestamp((p.plain_from + s.minute) * 60.0 - 20 + s.milliseconds / 1000.0), s.count,
         null, case when s.done = 1 then e.outcome end, k.key_id, t.tick, true, p.plain_from, p.plain_until
    from {ns}.plain_rows p
    join {ns}.job_key k using (key_id)
   cross join lateral (
      select x >> 20 as minute, x >> 19 & 1 as done, pg_catalog.max(x & 524287) as milliseconds, pg_catalog.count(*) as count
        from pg_catalog.unnest(p.plain) x group by 1, 2) s
   cross join lateral (
      select pg_catalog.to_char(pg_catalog.to_timestamp((p.plain_from + s.minute) * 60.0) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"') as tick) t
    left join {ns}.job_execution e on e.key_id = p.key_id and e.tick = t.tick and e.attempt = 1;

-- The hosts of each key.
create view {ns}.key_hosts as
  select k.key, k.shard, h.host, h.seen_at, h.presence from {ns}.key_host h join {ns}.job_key k using (key_id);

-- Leases and session locks side by side: also a lease without its lock, and a lock without a lease.
create view {ns}.leases as
  select k.key, k.shard, e.tick, k.execution_id, e.attempt,
         case when k.owner is null then 'stale'
              when k.expires_at <= pg_catalog.clock_timestamp() then 'stale'
              when k.session_lock and b.pid is null then 'orphaned'
              -- As numbers, because nothing can be subtracted from a time that is infinite.
              when pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) - pg_catalog.date_part('epoch', k.heartbeat_at)
                   > pg_catalog.date_part('epoch', k.ttl) / 3 then 'stale'
              else 'held' end as state,
         e.host, e.pid, e.user_name as "user", k.acquired_at, k.heartbeat_at, k.expires_at, e.fencing_token,
         coalesce(b.pid, k.backend_pid) as backend_pid, pg_catalog.host(s.client_addr) as client_address, s.application_name,
         coalesce(e.shards, k.shards) as shards, k.request_author as requested_by, k.request_acknowledged_at
    from {ns}.job_key k
    left join {ns}.job_execution e on e.execution_id = k.execution_id
    left join pg_catalog.pg_locks b
      on b.locktype = 'advisory' and b.granted and b.objsubid = 2 and b.classid = '{ns}.job_key'::pg_catalog.regclass
     and b.objid = k.key_id::pg_catalog.oid
     and b.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
    left join pg_catalog.pg_stat_activity s on s.pid = coalesce(b.pid, k.backend_pid)
   where k.owner is not null or b.pid is not null;

-- The pauses of a key or of all keys (`*`), and the drained hosts.
create view {ns}.pauses as
  select case p.kind when 'key' then p.name end as key, case p.kind when 'host' then p.name end as host,
         p.author, p.reason, p.created_at as since, p.until
    from {ns}.pause p where p.until is null or p.until > pg_catalog.clock_timestamp();

-- The past of a pause, with this one if it is not over yet. What was due in it was not missed.
create function {ns}.past_with_v1(p_past text, p_since timestamptz, p_until timestamptz, p_now timestamptz) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case when p_until <= to_timestamp(0) then p_past
              else right(concat(p_past, to_char(floor(date_part('epoch', p_since)), 'FM0000000000'), '-',
                                to_char(floor(date_part('epoch', least(p_until, p_now))) + 1, 'FM0000000000'), ' '), 990) end
$$;

create function {ns}.end_pause_v1(p_kind text, p_name text) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  update {ns}.pause x
     set past = {ns}.past_with_v1(x.past, x.created_at, x.until, clock_timestamp()), created_at = to_timestamp(0), until = to_timestamp(0)
   where x.kind = p_kind and x.name = p_name
$$;

-- Those that have ended by themselves: they do not come back when the clock is set back.
create function {ns}.end_pauses_v1() returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select {ns}.end_pause_v1(x.kind, x.name) from {ns}.pause x where x.until <= now() and x.until > to_timestamp(0) for update skip locked;
  delete from {ns}.pause x where (x.kind, x.name) in (
    select y.kind, y.name from {ns}.pause y
     where y.until <= to_timestamp(0) and rtrim(right(y.past, 11))::float8 < date_part('epoch', now()) - 400 * 86400
       for update skip locked)
$$;

-- Stop the starts of a key, of all keys or of a host. The lock on the table waits for the grants that are under way and
-- keeps others waiting until this transaction ends. So do heartbeats, hence the short lock_timeout of its callers: a client
-- asks again. It does not touch a job that checks its fence.
create function {ns}.stop_starts_v1(p_kind text, p_name text, p_author text, p_reason text, p_seconds double precision)
returns setof {ns}.pauses
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_before {ns}.pauses;
begin
  lock table {ns}.job_key in share mode;
  perform 1 from {ns}.pause x where x.kind = p_kind and x.name = p_name for update;
  select x.* into v_before from {ns}.pauses x where p_name = case p_kind when 'key' then x.key else x.host end;
  insert into {ns}.pause (kind, name, until, reason, author)
    values (p_kind, p_name, clock_timestamp() + make_interval(secs => p_seconds), p_reason, p_author)
    on conflict (kind, name) do update
      set until = excluded.until, reason = excluded.reason, author = excluded.author, created_at = excluded.created_at,
          past = {ns}.past_with_v1(pause.past, pause.created_at, pause.until, excluded.created_at);
  return query select x.* from {ns}.pauses x where p_name = case p_kind when 'key' then x.key else x.host end;
  if v_before.author is not null then return next v_before; end if;
end $$;

-- The commands for people.  Each returns the pause that is there now, if any, and then the one that was there before.
create function {ns}.pause_v1(p_key text, p_author text, p_reason text, p_seconds double precision) returns setof {ns}.pauses
language sql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
  select * from {ns}.stop_starts_v1('key', p_key, p_author, p_reason, p_seconds)
$$;

create function {ns}.resume_v1(p_key text) returns setof {ns}.pauses
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query select x.* from {ns}.pauses x where x.key = p_key;
  perform {ns}.end_pause_v1('key', p_key);
end $$;

create function {ns}.drain_v1(p_host text, p_author text, p_reason text, p_seconds double precision) returns setof {ns}.pauses
language sql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
  select * from {ns}.stop_starts_v1('host', p_host, p_author, p_reason, p_seconds)
$$;

create function {ns}.undrain_v1(p_host text) returns setof {ns}.pauses
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query select x.* from {ns}.pauses x where x.host = p_host;
  perform {ns}.end_pause_v1('host', p_host);
end $$;

-- A retired key is expected to run no more. Returns whether the key is known.
create function {ns}.forget_v1(p_key text, p_author text) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  with forgotten as (
    update {ns}.job_key k
       set version = {ns}.next_number(k.version), schedule = null, zone = null, expected_shards = null, starting_deadline = null, expected_since = null,
           forgotten_at = clock_timestamp(), forgotten_by = p_author
     where k.key = p_key
    returning 1)
  select exists (select from forgotten)
$$;

-- A retired host fires no keys any more. Returns whether it is known.
create function {ns}.forget_host_v1(p_host text) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $$
  with forgotten as (
    delete from {ns}.key_host h where h.host = p_host returning {ns}.put_away_v1(h.key_id, h.host, h.plain_from, h.plain))
  select exists (select from forgotten)
$$;

-- A request to a holder stays on its lease until the next renewal, which comes soon if the holder listens. The
-- execution keeps it on record.
create function {ns}.request_v1(
  p_key text, p_shard integer, p_execution_id bigint, p_kind text, p_author text, p_signal integer, p_grace double precision
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $$
declare
  v_id integer;
begin
  if p_signal is null or p_signal not between 1 and 64 or p_grace not between 0 and 3653 * 86400.0 then
    raise exception 'signal % or grace % is out of range', p_signal, p_grace using errcode = 'invalid_parameter_value';
  end if;
  update {ns}.job_key x
     set version = {ns}.next_number(x.version), request_kind = p_kind, request_author = p_author, request_signal = p_signal,
         request_grace = p_grace, request_acknowledged_at = null, requested_by = p_author
   where x.key = p_key and x.shard = p_shard and x.execution_id = p_execution_id
  returning x.key_id into v_id;
  if not found then return false; end if;
  update {ns}.job_execution x set request = p_kind, requested_by = p_author where x.execution_id = p_execution_id;
  perform pg_notify({ns}.channel_v1(v_id), '');
  return true;
end $$;

-- Free a part whose lease has expired or is missing, as a claim would, but without a start. The second look holds the
-- two locks of a claim; the first is released with this transaction.
create function {ns}.release_v1(
  p_key text, p_shard integer, p_execution_id bigint, p_author text,
  out answer text, out ends_in double precision, out backend_pid integer, out backend_start bigint
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
  k    {ns}.job_key;
  v_id integer;
begin
  ends_in := 0;
  select x.key_id into v_id from {ns}.job_key x where x.key = p_key and x.shard = p_shard;
  for v_pass in 1 .. 2 loop
    if v_pass = 2 then
      if not pg_try_advisory_xact_lock('{ns}.job_key'::regclass::oid::int4, v_id) then
        answer := 'locked'; backend_pid := {ns}.lock_holder_v1(v_id);
        if backend_pid = k.backend_pid then backend_start := {ns}.microseconds(k.backend_start); end if;
        return;
      end if;
      perform 1 from {ns}.job_key x where x.key_id = v_id for update;
    end if;
    perform {ns}.cut_v1(v_id);
    select x.* into k from {ns}.job_key x where x.key_id = v_id;
    if k.execution_id <> p_execution_id or k.execution_id is not null and p_execution_id is null then
      answer := 'other';
      return;
    end if;
    if k.expires_at > clock_timestamp() then
      answer := 'alive'; ends_in := extract(epoch from k.expires_at - clock_timestamp()); backend_pid := k.backend_pid;
      return;
    end if;
  end loop;
  perform {ns}.lose_v1(v_id, 'released', 'released by ' || p_author);
  perform {ns}.notify_v1(v_id);
  answer := 'free';
exception when lock_not_available then
  answer := 'locked'; backend_pid := {ns}.fence_holder_v1(v_id);
end $$;

-- Marks that lie ahead of this server's clock, further than any claim may be, count no further than now. They stand for a
-- clock that was wrong. The answer has each that was changed.
create function {ns}.unblock_v1(p_key text, p_shard integer)
returns table (shard integer, high_water double precision, last_start double precision)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $$
begin
  return query with marks as materialized (
    select k.key_id, k.shard, n.at, k.high_water, k.last_started_at, n.at + interval '5 minutes' as latest
      from {ns}.job_key k cross join (select clock_timestamp() as at) n
     where k.key = p_key and (p_shard is null or k.shard = p_shard) for no key update of k),
  cut as (
    update {ns}.job_key k
       set version = {ns}.next_number(k.version), high_water = case when k.high_water > m.latest then m.at else k.high_water end,
           last_started_at = case when k.last_started_at > m.latest then m.at else k.last_started_at end,
           previous_started_at = case when k.previous_started_at > m.latest then m.at else k.previous_started_at end
      from marks m
     where k.key_id = m.key_id and greatest(k.high_water, k.last_started_at, k.previous_started_at) > m.latest
    returning m.*)
  select c.shard::integer, case when c.high_water > c.latest then date_part('epoch', c.high_water) end,
         case when c.last_started_at > c.latest then date_part('epoch', c.last_started_at) end
    from cut c where greatest(c.high_water, c.last_started_at) > c.latest order by c.shard;
end $$;
