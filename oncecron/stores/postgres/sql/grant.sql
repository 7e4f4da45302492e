-- The writes of a claim, each a compare-and-set on the version that was looked at. Without an answer nothing was
-- written.
--
-- All wait for a job's own transaction that holds the fence (lock_not_available: for too long), and for a pause that is
-- being written: it locks the table against them, and a function locks its tables before it takes its snapshot.

-- The execution, the lease and the marks, where there is no lease: between two attempts there is no running execution
-- that would keep another one out. p_divisions: the lines of shard 0's row that were looked at. p_alone: the session
-- lock is taken only if it is free. p_full: if this percentage of max_connections, less those that superusers have for
-- themselves, is in use, the session is not to be held, and counts as a pooler's; null: it is held in any case. p_follows: the
-- execution whose place it begins with.
create function {ns}.grant_v1(
  p_key_id integer, p_version bigint, p_divisions text,
  p_attempt integer, p_cause text,
  p_tick text, p_tick_instant double precision, p_owner uuid, p_host text, p_pid integer, p_user text, p_command text,
  p_fired_at double precision, p_shards integer, p_retries integer,
  p_lateness double precision, p_ttl double precision, p_starting_deadline double precision,
  p_client_backend integer, p_backend_start timestamptz, p_alone boolean, p_full integer,
  p_schedule text, p_zone text, p_before text, p_after text, p_follows bigint default null,
  out execution_id bigint, out fencing_token bigint, out started_at double precision, out own_backend boolean, out locked boolean,
  out is_full boolean, out place text
)
language sql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
  with own as materialized (
    select k.key_id, k.key, k.shard, k.fence from {ns}.job_key k
     where k.key_id = p_key_id and k.version = p_version and k.owner is null for update),
  -- Another shard of this tick may have been granted since, but not with another number of shards.
  first as materialized (
    select d.key_id from {ns}.job_key d
     where d.key::text = (select o.key::text from own o where o.shard::int > 0 and p_tick is not null) and d.shard::int = 0
       and (d.divisions is not distinct from p_divisions
            or strpos(concat(e'\n', d.divisions, e'\n'), concat(e'\n', p_shards, ' ', p_tick, e'\n')) > 0) for no key update),
  session as materialized (
    select r.is_full, r.is_own and r.is_full is not true as is_held
      from (select o.is_own,
                   case when o.is_own and p_full is not null then
                     (select sum(pg_stat_get_db_numbackends(d.oid)) from pg_database d) * 100
                       >= (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int)
                          * p_full end as is_full
              from (select p_client_backend is not distinct from pg_backend_pid() as is_own) o) r),
  bolt as materialized (
    select clock_timestamp() as at, x.is_full, x.is_held as own_backend,
           x.is_held and pg_try_advisory_lock('{ns}.job_key'::regclass::oid::int4, own.key_id) as locked
      from own cross join session x
     where (own.shard::int = 0 or p_tick is null or exists (select from first))
       and not exists (select from {ns}.stop_v1(own.key, p_host))),
  started as (
    insert into {ns}.job_execution
        (key_id, tick, tick_at, attempt, owner_attempt, outcome, host, pid, user_name, command, fired_at, started_at, fencing_token,
         owner, shards, retries, cause, place)
      select own.key_id, p_tick, to_timestamp(p_tick_instant), p_attempt, p_attempt, 'running', p_host, p_pid, p_user, p_command,
             to_timestamp(p_fired_at), b.at, {ns}.next_number(own.fence::bigint), p_owner, p_shards, p_retries, p_cause,
             case when p_follows is not null then
               (select e.place from {ns}.job_execution e where e.execution_id = p_follows and e.key_id = p_key_id) end
        from own, bolt b where b.locked or not b.own_backend or p_alone
      returning execution_id, fencing_token, started_at, place),
  held as (
    update {ns}.job_key k
       set version = {ns}.next_number(k.version), fence = s.fencing_token,
           high_water = {ns}.marked(k.high_water, to_timestamp(p_tick_instant)),
           seen_until = {ns}.later(k.seen_until, to_timestamp(p_tick_instant)),
           running = s.execution_id, owner = p_owner, execution_id = s.execution_id, ttl = make_interval(secs => p_ttl),
           session_lock = b.own_backend, backend_pid = case when b.own_backend then pg_backend_pid() end,
           backend_start = case when b.own_backend then p_backend_start end,
           acquired_at = b.at, heartbeat_at = b.at, expires_at = b.at + make_interval(secs => p_ttl),
           newest_id = s.execution_id, tick = p_tick, tick_known = true, tick_attempt = p_attempt, newest_outcome = 'running',
           retrying = false, requested_by = null, host = p_host, pid = p_pid, user_name = p_user, newest_started_at = b.at,
           newest_owner = p_owner, last_execution_id = s.execution_id, last_started_at = b.at, last_lateness = p_lateness,
           previous_started_at = k.last_started_at, previous_lateness = k.last_lateness,
           shards = p_shards,
           schedule = coalesce(p_schedule, k.schedule),
           zone = case when p_schedule is null then k.zone else p_zone end,
           expected_shards = case when p_schedule is null then k.expected_shards else p_shards end,
           starting_deadline = case when p_schedule is null then k.starting_deadline else p_starting_deadline end,
           expected_since = case when p_schedule is null or (k.schedule::text, k.zone::text, k.expected_shards::int)
                                                            is not distinct from (p_schedule, p_zone, p_shards)
                                      and not {ns}.is_ahead(k.expected_since)
                                 then k.expected_since else b.at end,
           divisions = case when k.shard::int = 0 then {ns}.divided(k.divisions, p_shards, p_tick) end,
           divided_until = case when k.shard::int = 0 then {ns}.later(k.divided_until, to_timestamp(p_tick_instant)) end
      from started s, bolt b
     where k.key_id = p_key_id
    returning k.listened),
  divided as (
    update {ns}.job_key d
       set version = {ns}.next_number(d.version), divisions = {ns}.divided(d.divisions, p_shards, p_tick),
           divided_until = {ns}.later(d.divided_until, to_timestamp(p_tick_instant))
      from started s, first f
     where d.key_id = f.key_id and d.divisions is distinct from {ns}.divided(d.divisions, p_shards, p_tick))
  select s.execution_id, s.fencing_token, date_part('epoch'::text, s.started_at::timestamptz), b.own_backend, b.locked, b.is_full, s.place
    from started s, bolt b, held h
   where coalesce({ns}.see_again_v1(p_key_id, p_host, p_before, p_after, null, null),
                  {ns}.see_first_v1(p_key_id, p_host, p_after, null, null))
     and (not h.listened or pg_notify({ns}.channel_v1(p_key_id), '')::text is not null)
$$;

-- The lease has expired, or there is none and an execution is recorded as running. The answer has the execution that is
-- lost, with a digest of its owner's id.
create function {ns}.expire_v1(p_key_id integer, p_version bigint, p_note text,
  out is_lost boolean, out execution_id bigint, out owner_digest text, out tick text, out attempt bigint, out cause text,
  out outcome text, out exit_code integer, out signal integer, out lost_reason text, out requested_by text, out host text,
  out pid bigint, out "user" text, out started_at double precision, out duration double precision, out note text,
  out shards integer)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
  v_execution_id bigint;
begin
  select coalesce(k.running, k.execution_id) into v_execution_id from {ns}.job_key k
    where k.key_id = p_key_id and k.version = p_version
      and (k.expires_at <= clock_timestamp() or k.owner is null and k.running is not null)
    for update;
  if not found then return; end if;
  perform {ns}.lose_v1(p_key_id, 'expired', p_note);
  is_lost := true;
  select x.execution_id, left(encode(sha256(convert_to(x.owner::text, 'UTF8')), 'hex'), 16), x.tick, x.attempt, x.cause, x.outcome,
         x.exit_code, x.signal, x.lost_reason, x.requested_by, x.host, x.pid, x.user_name,
         date_part('epoch', x.started_at::timestamptz), x.duration, x.note, x.shards
    into execution_id, owner_digest, tick, attempt, cause, outcome, exit_code, signal, lost_reason, requested_by, host, pid, "user",
         started_at, duration, note, shards
    from {ns}.job_execution x
   where x.execution_id = v_execution_id and x.lost_at is not null;
end $$;

-- A lease that ends more than its ttl ahead is cut: the server's clock was set back.
create function {ns}.cut_v1(p_key_id integer) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  update {ns}.job_key k
     set version = {ns}.next_number(k.version), expires_at = clock_timestamp() + k.ttl,
         heartbeat_at = least(k.heartbeat_at, clock_timestamp())
   where k.key_id = p_key_id and k.expires_at > clock_timestamp() + k.ttl
$$;
