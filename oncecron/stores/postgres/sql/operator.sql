-- The views for people, and the functions for operators.

create view {ns}.executions as
  select e.execution_id, k.key, k.shard, e.tick, e.attempt, e.outcome, e.exit_code, e.signal, e.host, e.pid, e.user_name as "user",
         e.command, e.started_at, e.finished_at, e.duration, e.fencing_token, e.owner, e.note, e.fired_at, e.tick_at,
         e.key_id, e.lost_at, e.shards, e.retries, e.cause, e.lost_reason, e.request, e.requested_by,
         -- The dead letters: failed, could have been retried, and will not be.
         e.retries > 0 and e.outcome in ('failed', 'timed-out', 'lost')
           and not exists (select from {ns}.lease l where l.execution_id = e.execution_id)
           and not exists (select from {ns}.job_execution n where n.key_id = e.key_id and n.tick = e.tick
                              and n.attempt > e.attempt and n.outcome <> 'not-started')
           and not exists (select from {ns}.job_execution n where e.tick is null and n.owner = e.owner and n.key_id = e.key_id
                              and n.owner_attempt > e.owner_attempt and n.outcome <> 'not-started') as exhausted
    from {ns}.job_execution e join {ns}.job_key k using (key_id);

create view {ns}.outputs as
  select o.execution_id, o.output, o.cut from {ns}.job_output o;

create view {ns}.keys as
  select k.key_id, k.key, k.shard, k.high_water, k.last_execution_id, k.last_started_at, k.schedule, k.zone, k.shards, k.ttl
    from {ns}.job_key k;

create view {ns}.skips as
  select k.key, k.shard, nullif(s.tick, '') as tick, s.reason, s.holder_host, s.holder_pid, s.host, s.pid, s.at, s.count,
         s.fired_at, s.detail
    from {ns}.skip s join {ns}.job_key k using (key_id);

-- Leases and session locks side by side: also a lease without its lock, and a lock without a lease.
create view {ns}.leases as
  select k.key, k.shard, e.tick, l.execution_id, e.attempt,
         case when l.key_id is null then 'stale'
              when l.expires_at <= pg_catalog.clock_timestamp() then 'stale'
              when l.session_lock and b.pid is null then 'orphaned'
              when pg_catalog.clock_timestamp() - l.heartbeat_at > l.ttl / 3 then 'stale'
              else 'held' end as state,
         e.host, e.pid, e.user_name as "user", l.acquired_at, l.heartbeat_at, l.expires_at, e.fencing_token,
         coalesce(b.pid, l.backend_pid) as backend_pid, pg_catalog.host(s.client_addr) as client_address, s.application_name,
         coalesce(e.shards, k.shards) as shards, l.request_author as requested_by, l.request_acknowledged_at
    from {ns}.job_key k
    left join {ns}.lease l on l.key_id = k.key_id
    left join {ns}.job_execution e on e.execution_id = l.execution_id
    left join pg_catalog.pg_locks b
      on b.locktype = 'advisory' and b.granted and b.objsubid = 2 and b.classid = '{ns}.job_key'::pg_catalog.regclass
     and b.objid = k.key_id::pg_catalog.oid
     and b.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
    left join pg_catalog.pg_stat_activity s on s.pid = coalesce(b.pid, l.backend_pid)
   where l.key_id is not null or b.pid is not null;

-- The pauses of a key or of all keys (`*`), and the drained hosts.
create view {ns}.pauses as
  select p.key, null::text as host, p.author, p.reason, p.created_at as since, p.until
    from {ns}.pause p where p.until is null or p.until > pg_catalog.clock_timestamp()
   union all
  select null, d.host, d.author, null, d.created_at, null from {ns}.drain d;

-- Wait for the claims of a key, or of all keys, that have passed the gate, and block others before it until this transaction
-- ends.  The lock conflicts with that of a claim, not with that of a job that checks its fence.  A key that fires for
-- the first time in this very moment has no row to lock yet.
create function {ns}.await_claims_v1(p_key text) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select 1 from {ns}.job_key k where p_key in (k.key, '*') order by k.key_id for key share
$$;

-- The commands for people.  Each returns the pause that is there now, if any, and then the one that was there before.
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

-- A request to a holder stays on its lease until the next renewal, which comes soon if the holder listens.  The execution keeps
-- it on record.
create function {ns}.request_v1(
  p_key text, p_shard integer, p_execution_id bigint, p_kind text, p_author text, p_signal integer, p_grace double precision
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $$
begin
  update {ns}.lease x
     set request_kind = p_kind, request_author = p_author, request_signal = p_signal, request_grace = p_grace, request_acknowledged_at = null
    from {ns}.job_key k
   where k.key = p_key and k.shard = p_shard and x.key_id = k.key_id and x.execution_id = p_execution_id;
  if not found then return false; end if;
  update {ns}.job_execution x set request = p_kind, requested_by = p_author where x.execution_id = p_execution_id;
  perform pg_notify({ns}.channel_v1(k.key_id), '') from {ns}.job_key k where k.key = p_key and k.shard = p_shard;
  return true;
end $$;

-- Free a part whose lease has expired or is missing, as a claim would, but without a start.  The second look holds the two locks
-- of a claim; the first is released with this transaction.
create function {ns}.release_v1(
  p_key text, p_shard integer, p_execution_id bigint, p_author text,
  out answer text, out ends_in double precision, out backend_pid integer, out backend_start text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
  l    {ns}.lease;
  v_id integer;
begin
  ends_in := 0;
  select k.key_id into v_id from {ns}.job_key k where k.key = p_key and k.shard = p_shard;
  for v_pass in 1 .. 2 loop
    if v_pass = 2 then
      if not pg_try_advisory_xact_lock('{ns}.job_key'::regclass::oid::int4, v_id) then
        answer := 'locked'; backend_pid := {ns}.lock_holder_v1(v_id);
        if backend_pid = l.backend_pid then backend_start := l.backend_start; end if;
        return;
      end if;
      perform 1 from {ns}.job_key x where x.key_id = v_id for update;
    end if;
    update {ns}.lease x set expires_at = clock_timestamp() + x.ttl, heartbeat_at = least(x.heartbeat_at, clock_timestamp())
      where x.key_id = v_id and x.expires_at > clock_timestamp() + x.ttl;
    select x.* into l from {ns}.lease x where x.key_id = v_id for update;
    if l.execution_id <> p_execution_id or l.execution_id is not null and p_execution_id is null then
      answer := 'other';
      return;
    end if;
    if l.expires_at > clock_timestamp() then
      answer := 'alive'; ends_in := extract(epoch from l.expires_at - clock_timestamp()); backend_pid := l.backend_pid;
      return;
    end if;
  end loop;
  delete from {ns}.lease x where x.key_id = v_id;
  perform {ns}.lose_v1(l, v_id, 'released', 'released by ' || p_author, clock_timestamp());
  perform {ns}.notify_v1(v_id);
  answer := 'free';
exception when lock_not_available then
  answer := 'locked'; backend_pid := {ns}.fence_holder_v1(v_id);
end $$;

revoke all on schema {ns} from public;
revoke all on all tables in schema {ns} from public;
revoke all on all functions in schema {ns} from public;
