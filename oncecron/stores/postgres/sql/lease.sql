-- What a firing calls with a lease, the delivery of spooled records, and the fence check of a job.

-- Makes the connection readable when something happens to the part.  It does nothing behind a transaction pooler, where the
-- connection is shared.  True: something has already happened.
create function {ns}.listen_v1(p_key text, p_shard integer, p_owner uuid, p_awaited bigint, p_client_backend integer) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id integer;
begin
  if p_client_backend is distinct from pg_backend_pid() then return null; end if;
  v_id := {ns}.key_id_v1(p_key, p_shard);
  execute format('listen %I', {ns}.channel_v1(v_id));
  if exists (select from {ns}.lease x where x.key_id = v_id and x.owner = p_owner) then
    return exists (select from {ns}.lease x where x.key_id = v_id and x.request_kind is not null and x.request_acknowledged_at is null);
  end if;
  if not exists (select from {ns}.listened x where x.key_id = v_id) then
    insert into {ns}.listened (key_id) values (v_id) on conflict (key_id) do nothing;
  end if;
  return p_awaited is not null and not exists (select from {ns}.lease x where x.key_id = v_id and x.execution_id = p_awaited);
end $$;

-- A heartbeat: compare-and-set on (execution, owner).  Null: lost for good.  It sets the expiry, even if the old one was later.
-- On a new backend (a re-adoption) it also takes the session lock again, if it is free.  It returns the request to the holder.
create function {ns}.renew_v1(
  p_execution_id bigint, p_owner uuid, p_locked boolean, p_client_backend integer, p_backend_start timestamptz,
  out locked boolean, out request_kind text, out request_author text, out request_signal integer, out request_grace double precision
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  l {ns}.lease;
  v_session boolean := p_client_backend is not distinct from pg_backend_pid();
begin
  update {ns}.lease x
     set heartbeat_at = clock_timestamp(), expires_at = clock_timestamp() + x.ttl, session_lock = v_session,
         backend_pid = pg_backend_pid(), backend_start = coalesce(p_backend_start, x.backend_start),
         request_acknowledged_at = case when x.request_kind is not null then coalesce(x.request_acknowledged_at, clock_timestamp()) end
   where x.execution_id = p_execution_id and x.owner = p_owner
  returning x.* into l;
  if not found then return; end if;
  locked := p_locked or v_session and {ns}.take_lock_v1(l.key_id);
  request_kind := l.request_kind; request_author := l.request_author;
  request_signal := l.request_signal; request_grace := l.request_grace;
end $$;

-- The store has lost the execution of a running holder (a failover to a standby that did not have it).  It is put back with
-- its old token, but only if no claim of the key was granted since.
create function {ns}.adopt_v1(
  p_key text, p_shard integer, p_tick text, p_tick_at double precision, p_attempt integer, p_owner uuid, p_host text, p_pid integer,
  p_user text, p_command text, p_fired_at double precision, p_started_at double precision, p_shards integer, p_retries integer,
  p_cause text, p_token bigint, p_ttl double precision, p_client_backend integer, p_backend_start timestamptz
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
  update {ns}.job_execution x
     set outcome = 'lost', lost_at = clock_timestamp(), lost_reason = 'superseded',
         note = {ns}.joined_v1(x.note, 'running without a lease')
    where x.key_id = k.key_id and x.outcome = 'running';
  insert into {ns}.job_execution
      (key_id, tick, tick_at, attempt, owner_attempt, outcome, host, pid, user_name, command, fired_at, started_at, fencing_token,
       owner, shards, retries, cause, note)
    values (k.key_id, p_tick, to_timestamp(p_tick_at), p_attempt, p_attempt, 'running', p_host, p_pid, p_user, p_command, to_timestamp(p_fired_at),
            to_timestamp(p_started_at), p_token, p_owner, p_shards, p_retries, p_cause, 'put back: the store had lost it')
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

-- Take back a start that did not happen, so that `recent` ignores it.
create function {ns}.take_back_start_v1(p_execution_id bigint) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  update {ns}.job_key x
     set last_started_at = x.previous_started_at, last_lateness = x.previous_lateness, last_execution_id = null
   where x.last_execution_id = p_execution_id
$$;

-- The captured output of an execution; the first one delivered stays.
create function {ns}.put_output_v1(p_execution_id bigint, p_output text, p_cut bigint) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into {ns}.job_output (execution_id, output, cut) select p_execution_id, p_output, coalesce(p_cut, 0) where p_output is not null
    on conflict (execution_id) do nothing
$$;

-- The end of an attempt that a retry is to follow: the lease is kept and renewed.
create function {ns}.keep_v1(
  p_execution_id bigint, p_owner uuid, p_outcome text, p_exit_code integer, p_signal integer, p_duration double precision,
  p_note text, p_output text, p_cut bigint
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  update {ns}.lease x set heartbeat_at = clock_timestamp(), expires_at = clock_timestamp() + x.ttl
    where x.execution_id = p_execution_id and x.owner = p_owner;
  if not found then return false; end if;
  update {ns}.job_execution x
     set outcome = p_outcome, exit_code = p_exit_code, signal = p_signal, duration = p_duration, finished_at = clock_timestamp(),
         retrying = true, note = {ns}.joined_v1(x.note, p_note)
   where x.execution_id = p_execution_id and x.outcome = 'running';
  if found and p_output is not null then perform {ns}.put_output_v1(p_execution_id, p_output, p_cut); end if;
  return true;
end $$;

-- The next attempt under the lease that was kept; no answer: the lease is lost.  A repeated call returns the same attempt.
-- A request to the holder was for the attempt before.
create function {ns}.retry_v1(
  p_execution_id bigint, p_owner uuid, p_locked boolean, p_client_backend integer, p_backend_start timestamptz
) returns {ns}.answer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  a     {ns}.answer;
  k     {ns}.job_key;
  l     {ns}.lease;
  e     {ns}.job_execution;     -- the last attempt, and then the one that runs
  v_now timestamptz;
  v_session boolean := p_client_backend is not distinct from pg_backend_pid();
begin
  select x.* into e from {ns}.job_execution x where x.execution_id = p_execution_id and x.owner = p_owner;
  select x.* into l from {ns}.lease x where x.key_id = e.key_id and x.owner = p_owner;
  if not found then return a; end if;
  perform set_config('lock_timeout', (extract(epoch from least(interval '2 seconds', l.ttl / 12)) * 1000)::int::text, true);
  select x.* into k from {ns}.job_key x where x.key_id = e.key_id for update;
  perform set_config('lock_timeout', '0', true);
  v_now := clock_timestamp();
  select x.* into l from {ns}.lease x where x.key_id = e.key_id and x.owner = p_owner;
  if l.execution_id = p_execution_id and e.retrying then
    a := {ns}.gate_v1(k.key, e.host);
    if a.answer is not null then
      perform {ns}.skip_v1(k.key, k.shard, e.tick, e.host, a.reason, e.pid, {ns}.epoch(e.fired_at), null, null, a.detail, null, 1, null);
      return a;
    end if;
    insert into {ns}.job_execution
        (key_id, tick, tick_at, attempt, owner_attempt, outcome, host, pid, user_name, command, fired_at, started_at, fencing_token,
         owner, shards, retries, cause)
      select e.key_id, e.tick, e.tick_at, n.attempt, n.attempt, 'running', e.host, e.pid, e.user_name, e.command, e.fired_at, v_now,
             greatest(k.fence + 1, ({ns}.epoch(v_now) * 1e6)::bigint), e.owner, e.shards, e.retries, 'retry'
        from (select 1 + greatest(e.attempt, max(x.attempt)) as attempt
                from {ns}.job_execution x where x.key_id = e.key_id and x.tick = e.tick) n
      returning * into e;
    update {ns}.job_key x
       set fence = e.fencing_token, last_execution_id = e.execution_id, last_started_at = v_now,
           previous_started_at = x.last_started_at, previous_lateness = x.last_lateness
     where x.key_id = e.key_id;
    update {ns}.lease x
       set execution_id = e.execution_id, request_kind = null, request_author = null, request_signal = null, request_grace = null,
           request_acknowledged_at = null
     where x.key_id = e.key_id;
    perform {ns}.notify_v1(e.key_id);
  else
    select x.* into e from {ns}.job_execution x where x.execution_id = l.execution_id;
    if e.execution_id is not distinct from p_execution_id or e.outcome is distinct from 'running' then return null; end if;
  end if;
  update {ns}.lease x
     set heartbeat_at = v_now, expires_at = v_now + x.ttl, session_lock = v_session,
         backend_pid = pg_backend_pid(), backend_start = coalesce(p_backend_start, x.backend_start)
   where x.key_id = e.key_id;
  a.answer := 'lease'; a.execution_id := e.execution_id; a.attempt := e.attempt; a.fencing_token := e.fencing_token;
  a.started_at := {ns}.epoch(e.started_at); a.cause := e.cause; a.locked := p_locked or v_session and {ns}.take_lock_v1(e.key_id);
  return a;
exception when lock_not_available then      -- a transaction of the last attempt has not ended
  a := null;
  a.answer := 'again'; a.reason := 'fenced'; a.backend_pid := {ns}.fence_holder_v1(e.key_id);
  return a;
end $$;

-- The owner gives up after an attempt that it had kept.  This is final, unless another firing has taken over.  A next attempt
-- whose answer the owner never got did not start.  Returns the owner's lease, if it still had one.
create function {ns}.give_up_v1(p_execution_id bigint, p_owner uuid, l {ns}.lease, variadic p_notes text[]) returns {ns}.lease
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  e {ns}.job_execution;
begin
  select x.* into e from {ns}.job_execution x where x.execution_id = p_execution_id and x.owner = p_owner and x.retrying;
  if not found then return l; end if;
  if l.key_id is null then
    delete from {ns}.lease x where x.key_id = e.key_id and x.owner = p_owner returning x.* into l;
  end if;
  if l.execution_id <> p_execution_id then
    update {ns}.job_execution x
       set outcome = 'not-started', duration = 0, finished_at = clock_timestamp(),
           note = {ns}.joined_v1(x.note, 'its owner never got the answer')
      where x.execution_id = l.execution_id and x.outcome = 'running';
    perform {ns}.take_back_start_v1(l.execution_id);
  end if;
  update {ns}.job_execution x
     set retrying = false, note = {ns}.joined_v1(variadic x.note || p_notes)
   where x.execution_id = p_execution_id;
  return l;
end $$;

-- The end.  It does not release the session lock, which would take effect before the commit; closing the session does.
create function {ns}.finish_v1(
  p_execution_id bigint, p_owner uuid, p_outcome text, p_exit_code integer, p_signal integer, p_duration double precision,
  p_note text, p_output text, p_cut bigint, p_lost_reason text, p_request text, p_requested_by text,
  p_keep_executions double precision, p_keep_skips double precision
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  l {ns}.lease;
begin
  delete from {ns}.lease x where x.execution_id = p_execution_id and x.owner = p_owner returning x.* into l;
  update {ns}.job_execution x
     set outcome = p_outcome, exit_code = p_exit_code, signal = p_signal, duration = p_duration, finished_at = clock_timestamp(),
         lost_at = case when l.key_id is null then coalesce(x.lost_at, clock_timestamp()) end,
         note = {ns}.joined_v1(x.note, p_note, case when l.key_id is null then 'ended after its lease was lost' end),
         lost_reason = coalesce(p_lost_reason, case when l.key_id is null then coalesce(x.lost_reason, 'revoked') end),
         request = coalesce(p_request, x.request), requested_by = coalesce(p_requested_by, x.requested_by)
   where x.execution_id = p_execution_id and x.owner = p_owner and (x.outcome = 'running' or x.outcome = 'lost' and x.duration is null);
  if found then
    if p_output is not null then perform {ns}.put_output_v1(p_execution_id, p_output, p_cut); end if;
    if p_outcome = 'not-started' then perform {ns}.take_back_start_v1(p_execution_id); end if;
  else
    l := {ns}.give_up_v1(p_execution_id, p_owner, l, p_note);
  end if;
  if l.key_id is not null then perform {ns}.notify_v1(l.key_id); end if;
  begin
    perform {ns}.expire_v1(l.key_id, make_interval(secs => p_keep_executions), make_interval(secs => p_keep_skips), 100, 1000);
  exception when others then      -- an error of retention must not lose the record of the end
    raise log 'oncecron: retention: %', sqlerrm;
  end;
  -- A repeated call (its answer was lost) has the same answer.
  return exists (select from {ns}.job_execution x where x.execution_id = p_execution_id and x.owner = p_owner and x.lost_at is null);
end $$;

-- Retention: remove at most p_most expired executions and as many skips.  Only the log keeps named ticks unique, so the newest
-- p_names of a key are kept however old they are; only the given key's names are examined.  It uses now(), because
-- clock_timestamp() is volatile and uses no index, and plans for the given ages.  Otherwise every finish reads the whole log
-- (500 ms at a million rows, instead of 1 ms).
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
         and not exists (select from {ns}.lease l where l.execution_id = y.execution_id)
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
           and not exists (select from {ns}.lease l where l.execution_id = y.execution_id)
         order by y.execution_id limit p_most for update skip locked)
      returning 1)
    select executions + count(*) into executions from gone;
  end if;
end $$;

-- Delivers a spooled record, or a record for a log store.  It is idempotent by (owner, attempt), replaces `running` and `lost` by
-- what happened, releases only its own lease, inserts what this store never saw, and never fails on a conflict.  With ages it
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
  v_lost_reason text := p ->> 'lost_reason';
  v_outcome text := p ->> 'outcome';
  v_tick text := p ->> 'tick';
  v_token bigint := (p ->> 'fencing_token')::bigint;
  l {ns}.lease;
  v_unfinished constant text := 'its end was not recorded';
begin
  if p ->> 'kind' = 'skip' then
    perform {ns}.skip_v1(p ->> 'key', (p ->> 'shard')::int, v_tick, p ->> 'host', p ->> 'reason', (p ->> 'pid')::int,
      (p ->> 'fired_at')::float8, p ->> 'holder_host', (p ->> 'holder_pid')::int, p ->> 'detail',
      (p ->> 'at')::float8, coalesce((p ->> 'count')::bigint, 1), p ->> 'owner');
    return;
  end if;
  if v_outcome <> 'running' then
    begin
      perform {ns}.expire_v1(v_id, make_interval(secs => p_keep_executions), make_interval(secs => p_keep_skips), 100, 1000)
        where p_keep_executions is not null;
    exception when others then      -- an error of retention must not lose the record
      raise log 'oncecron: retention: %', sqlerrm;
    end;
  end if;
  -- By the owner's number of the attempt; an owner that gave up without a number means its newest.
  select x.* into e from {ns}.job_execution x
    where x.owner = (p ->> 'owner')::uuid and x.key_id = v_id
      and x.owner_attempt = coalesce((p ->> 'attempt')::int, x.owner_attempt)
    order by x.owner_attempt desc limit 1 for update;
  if found then
    if v_outcome <> 'running' then
      delete from {ns}.lease x where x.execution_id = e.execution_id returning x.* into l;
    end if;
    if v_outcome <> 'running' and (e.outcome = 'running' or e.outcome = 'lost' and e.duration is null) then
      update {ns}.job_execution x
         set outcome = v_outcome, exit_code = (p ->> 'exit_code')::int, signal = (p ->> 'signal')::int,
             duration = (p ->> 'duration')::float8, finished_at = to_timestamp((p ->> 'finished_at')::float8),
             note = {ns}.joined_v1(x.note, v_note, v_late), lost_reason = coalesce(v_lost_reason, x.lost_reason),
             request = coalesce(p ->> 'request', x.request), requested_by = coalesce(p ->> 'requested_by', x.requested_by)
       where x.execution_id = e.execution_id;
      perform {ns}.put_output_v1(e.execution_id, p ->> 'output', (p ->> 'output_cut')::bigint);
      if v_outcome = 'not-started' then perform {ns}.take_back_start_v1(e.execution_id); end if;
    elsif v_outcome <> 'running' then
      l := {ns}.give_up_v1(e.execution_id, e.owner, l, v_note, v_late);
    end if;
    if l.key_id is not null then perform {ns}.notify_v1(v_id); end if;
    return;
  end if;
  if v_outcome = 'not-started' and v_token is null then return; end if;
  -- A higher token: a later start has the key.  An earlier one without a lease here ended without a record.
  select k.fence into v_fence from {ns}.job_key k where k.key_id = v_id for update;
  if v_token >= v_fence then
    update {ns}.job_execution x
       set outcome = 'lost', lost_at = clock_timestamp(), lost_reason = 'superseded', note = {ns}.joined_v1(x.note, v_unfinished)
     where x.key_id = v_id and x.outcome = 'running'
       and not exists (select from {ns}.lease y where y.execution_id = x.execution_id);
  end if;
  if v_outcome = 'running' and (
       coalesce(v_token, 0) < v_fence or exists (select from {ns}.job_execution x where x.key_id = v_id and x.outcome = 'running')) then
    v_outcome := 'lost';
    v_lost_reason := 'superseded';
    v_note := {ns}.joined_v1(v_note, v_unfinished);
  end if;
  for v_try in 1 .. 100 loop
    select case when bool_or(x.attempt = (p ->> 'attempt')::int) then max(x.attempt) + 1 else (p ->> 'attempt')::int end
      into v_attempt from {ns}.job_execution x where x.key_id = v_id and x.tick = v_tick;
    begin
      insert into {ns}.job_execution
          (key_id, tick, tick_at, attempt, owner_attempt, outcome, exit_code, signal, host, pid, user_name, command, fired_at,
           started_at, finished_at, duration, fencing_token, owner, shards, retries, cause, lost_reason, request, requested_by, note)
        values (v_id, v_tick, to_timestamp((p ->> 'tick_instant')::float8), v_attempt, (p ->> 'attempt')::int, v_outcome,
          (p ->> 'exit_code')::int, (p ->> 'signal')::int, p ->> 'host', (p ->> 'pid')::int, p ->> 'user', p ->> 'command',
          to_timestamp((p ->> 'fired_at')::float8), to_timestamp((p ->> 'started_at')::float8),
          to_timestamp((p ->> 'finished_at')::float8), (p ->> 'duration')::float8, v_token,
          (p ->> 'owner')::uuid, coalesce((p ->> 'shards')::int, 1), coalesce((p ->> 'retries')::int, 0),
          p ->> 'cause', v_lost_reason, p ->> 'request', p ->> 'requested_by', {ns}.joined_v1(v_note, v_late))
        returning execution_id into e.execution_id;
      perform {ns}.put_output_v1(e.execution_id, p ->> 'output', (p ->> 'output_cut')::bigint);
      exit;
    exception when unique_violation then
      if exists (select from {ns}.job_execution x
                  where x.owner = (p ->> 'owner')::uuid and x.key_id = v_id and x.owner_attempt = (p ->> 'attempt')::int) then
        return;
      end if;
    end;
  end loop;
  -- It ran, so its tick and those before it are passed.  An instant far ahead is ignored: every tick before it would be skipped.
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

-- For a job's own transaction: it fails if the token is stale, and a takeover waits until the transaction ends.
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
