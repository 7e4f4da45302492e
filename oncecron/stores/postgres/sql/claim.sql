-- The claim.  decide_v1 makes the decision, in the numbered steps of stores/api.py.

-- 1. Paused or drained; null if neither.  The key's own pause takes precedence over that of all keys.
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

-- 1. Another number of parts than that with which any part of this tick was granted; null if there is none.
create function {ns}.parts_v1(p_key text, p_tick text, p_shards integer) returns {ns}.answer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  a {ns}.answer;
  v_other integer;
begin
  select x.shards into v_other from {ns}.job_key k join {ns}.job_execution x on x.key_id = k.key_id
    where k.key = p_key and x.tick = p_tick and x.shards <> p_shards limit 1;
  if found then
    a.answer := 'parts'; a.detail := v_other;
  end if;
  return a;
end $$;

-- The claim, in the numbered steps of stores/api.py.  It changes nothing, except that it grants, declares an execution lost,
-- or cuts a lease that ends too far in the future.
create function {ns}.decide_v1(
  p_key text, p_shard integer, p_tick text, p_tick_at timestamptz, p_rule text, p_owner uuid,
  p_host text, p_pid integer, p_user text, p_command text, p_fired_at timestamptz, p_host_now timestamptz,
  p_ttl interval, p_min_gap interval, p_starting_deadline interval, p_again boolean, p_schedule text, p_zone text,
  p_shards integer, p_failover boolean, p_retries integer, p_max_skew interval, p_session boolean, p_backend_start timestamptz,
  p_watched timestamptz, p_alone boolean, p_awaited bigint
) returns {ns}.answer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  a       {ns}.answer;
  k       {ns}.job_key;
  l       {ns}.lease;
  v_dead  {ns}.lease;           -- an expired one that was removed
  e       {ns}.job_execution;   -- of the lease
  t       {ns}.job_execution;   -- of the tick, or without a tick since the awaited one
  v_now   timestamptz := clock_timestamp();
  v_id    integer;
  v_class integer := '{ns}.job_key'::regclass::oid::int4;
  v_got   boolean := false;
  v_busy  boolean;
  v_unknown boolean;            -- t has no recorded end, and no living lease
  v_goes_on boolean;            -- it takes over after t
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
     where x.key_id = v_id and x.owner = p_owner and x.execution_id = t.execution_id;
    if found then
      a.answer := 'lease'; a.execution_id := t.execution_id; a.attempt := t.attempt;
      a.fencing_token := t.fencing_token; a.started_at := {ns}.epoch(t.started_at); a.cause := t.cause;
      a.locked := p_session and {ns}.take_lock_v1(v_id);
    else
      a.answer := 'refused'; a.reason := 'done'; a.holder_host := t.host; a.holder_pid := t.pid; a.holder_user := t.user_name;
      a.holder_since := {ns}.epoch(t.started_at); a.detail := t.outcome;
    end if;
    return a;
  end if;

  -- 1. Paused or drained; clocks too far apart, or an instant too far ahead; another number of parts.
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
  if p_tick is not null then
    a := {ns}.parts_v1(p_key, p_tick, p_shards);
    if a.answer is not null then
      return a;
    end if;
  end if;

  for v_pass in 1 .. 3 loop
    if v_pass = 2 then
      -- 3. The session lock, without waiting.
      if p_session and not p_alone then
        v_got := pg_try_advisory_lock(v_class, v_id);
        if not v_got then
          v_busy := {ns}.lock_busy_v1(v_id);
          select x.* into l from {ns}.lease x where x.key_id = v_id;
          if not found or v_busy and l.expires_at <= clock_timestamp() then
            a.answer := 'again'; a.reason := 'contended'; a.after := 0.05; a.ends_in := 0;
            return a;
          elsif l.expires_at <= clock_timestamp() and l.heartbeat_at is distinct from p_watched then
            select x.* into e from {ns}.job_execution x where x.execution_id = l.execution_id;
            a.answer := 'again'; a.reason := 'stale'; a.after := extract(epoch from l.ttl) / 3; a.ends_in := 0;
            a.execution_id := l.execution_id; a.watched := l.heartbeat_at::text;
            a.backend_pid := l.backend_pid; a.backend_start := l.backend_start::text;
            a.holder_host := e.host; a.holder_pid := e.pid; a.holder_user := e.user_name;
            a.holder_since := {ns}.epoch(e.started_at);
            return a;
          end if;   -- renewed: the second look answers held; or watched for long enough: the row decides
        end if;
      end if;
      -- 4. The lock of the key's row, then that of all parts, until the commit: the next claim sees this grant.
      perform set_config('lock_timeout', (extract(epoch from least(interval '2 seconds', p_ttl / 12)) * 1000)::int::text, true);
      perform 1 from {ns}.job_key x where x.key_id = v_id for update;
      if p_tick is not null then perform pg_advisory_xact_lock('{ns}.job_execution'::regclass::oid::int4, hashtext(p_key)); end if;
      perform set_config('lock_timeout', '0', true);
      -- 1 again: after a pause has returned, nothing may start.
      a := {ns}.gate_v1(p_key, p_host);
      exit when a.answer is not null;
    end if;

    -- 2 and again under the lock: the lease,
    v_now := clock_timestamp();
    select x.* into k from {ns}.job_key x where x.key_id = v_id;
    select x.* into l from {ns}.lease x where x.key_id = v_id;
    if l.owner = p_owner then       -- committed after step 0 by our own abandoned session: step 0 of the next claim finds it
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
      a.execution_id := l.execution_id; a.ends_in := extract(epoch from l.expires_at - v_now); a.watched := l.heartbeat_at::text;
      a.same_tick := e.tick is not distinct from p_tick;
      if (not a.same_tick or p_tick is null) and (
           v_now - l.heartbeat_at > l.ttl / 3
           or l.session_lock and p_session and (v_got or {ns}.lock_holder_v1(v_id) is null)) then
        a.answer := 'again'; a.reason := 'orphaned'; a.after := least(a.ends_in, greatest(1, extract(epoch from l.ttl) / 6));
      else
        a.answer := 'refused'; a.reason := 'held';
      end if;
      exit;
    end if;

    -- the tick: its newest attempt that may have started, else its newest; without a tick the awaited execution, or one after it,
    if p_tick is null and p_failover and p_awaited is not null then
      select x.* into t from {ns}.job_execution x
        where x.key_id = v_id and x.tick is null and x.execution_id >= p_awaited
          and exists (select from {ns}.job_execution y where y.execution_id = p_awaited and y.tick is null)
        order by x.outcome = 'not-started', x.execution_id desc limit 1;
    else
      select x.* into t from {ns}.job_execution x
        where x.key_id = v_id and x.tick = p_tick order by x.outcome = 'not-started', x.attempt desc limit 1;
    end if;
    v_unknown := coalesce(t.outcome = 'running' or t.execution_id = l.execution_id, false);
    if not v_unknown then
      v_goes_on := coalesce(p_failover and not p_again and (t.outcome = 'lost' or t.retrying), false);
      if not p_again and not v_goes_on and t.outcome <> 'not-started'
         and (p_tick is not null or t.outcome <> 'stopped' or t.requested_by is not null) then
        a.answer := 'refused'; a.reason := 'done'; a.holder_host := t.host; a.holder_pid := t.pid; a.holder_user := t.user_name;
        a.holder_since := {ns}.epoch(t.started_at); a.detail := t.outcome;
        exit;
      end if;
      if p_tick_at < k.high_water and v_goes_on
         or not p_again and coalesce(t.outcome, 'not-started') = 'not-started' and (p_tick_at < k.high_water
           -- An attempt that retention has removed may have started.
           or p_tick_at = k.high_water and coalesce((
                select max(x.attempt) > count(*) from {ns}.job_execution x where x.key_id = v_id and x.tick = p_tick), true)) then
        a.answer := 'refused'; a.reason := 'passed';
        a.detail := 'by tick ' || to_char(k.high_water at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"');
        exit;
      end if;
      if v_goes_on and p_tick is not null and t.attempt > p_retries then
        a.answer := 'refused'; a.reason := 'exhausted'; a.holder_host := t.host; a.holder_pid := t.pid; a.holder_user := t.user_name;
        a.holder_since := {ns}.epoch(t.started_at); a.detail := t.outcome;
        exit;
      end if;

      -- 6. the gap, which a takeover ignores, unless another start without a tick came since; and the deadline.
      v_ago := case when k.last_started_at < v_now then v_now - k.last_started_at
                    when k.last_started_at is not null then interval '0' end;
      if not p_again and v_ago < p_min_gap and not (v_goes_on and (p_tick is not null or k.last_started_at <= t.started_at))
         and (p_rule = 'none' or k.last_lateness > 60 - extract(epoch from p_min_gap)) then
        select x.* into e from {ns}.job_execution x where x.execution_id = k.last_execution_id;
        a.answer := 'refused'; a.reason := 'recent'; a.holder_host := e.host; a.holder_pid := e.pid; a.holder_user := e.user_name;
        a.holder_since := {ns}.epoch(k.last_started_at);
        exit;
      end if;
      if v_now - p_tick_at > p_starting_deadline then
        a.answer := 'refused'; a.reason := 'late'; a.holder_since := {ns}.epoch(p_tick_at);
        exit;
      end if;
    end if;
    continue when v_pass = 1;

    -- 5. an expired lease, or an execution without one, is removed; then look again if it was of this tick.
    delete from {ns}.lease x where x.key_id = v_id and x.expires_at <= v_now;
    if l.key_id is not null and not found then     -- renewed between the look and the delete
      a.answer := 'again'; a.reason := 'contended'; a.after := 0.05; a.ends_in := 0;
      exit;
    end if;
    if l.key_id is not null or exists (select from {ns}.job_execution x where x.key_id = v_id and x.outcome = 'running') then
      perform {ns}.lose_v1(l, v_id, 'expired', 'its lease ended, found by ' || p_host, v_now);
      select x.* into k from {ns}.job_key x where x.key_id = v_id;
      if l.key_id is not null then v_dead := l; end if;
    end if;
    exit when not v_unknown;
  end loop;

  if a.answer is null and p_tick is not null then
    a := {ns}.parts_v1(p_key, p_tick, p_shards);
  end if;
  if a.answer is not null then
    if v_got then perform pg_advisory_unlock(v_class, v_id); end if;
    return a;
  end if;

  -- 7. Granted.
  a.answer := 'lease';
  a.attempt := 1 + coalesce((select max(x.attempt) from {ns}.job_execution x where x.key_id = v_id and x.tick = p_tick), 0);
  a.fencing_token := greatest(k.fence + 1, ({ns}.epoch(v_now) * 1e6)::bigint);
  a.started_at := {ns}.epoch(v_now);
  a.cause := case when p_again then 'manual' when v_goes_on then 'takeover' else 'schedule' end;
  insert into {ns}.job_execution
      (key_id, tick, tick_at, attempt, owner_attempt, outcome, host, pid, user_name, command, fired_at, started_at, fencing_token, owner,
       shards, retries, cause)
    values (v_id, p_tick, p_tick_at, a.attempt, a.attempt, 'running', p_host, p_pid, p_user, p_command, p_fired_at, v_now, a.fencing_token, p_owner,
            p_shards, p_retries, a.cause)
    returning execution_id into a.execution_id;
  update {ns}.job_key
     set fence = a.fencing_token, high_water = greatest(high_water, p_tick_at), last_execution_id = a.execution_id,
         last_started_at = v_now, last_lateness = mod({ns}.epoch(p_fired_at)::numeric, 60),
         previous_started_at = last_started_at, previous_lateness = last_lateness,
         schedule = p_schedule, zone = p_zone, ttl = p_ttl, shards = p_shards
   where key_id = v_id;
  a.locked := v_got or p_session and p_alone and {ns}.take_lock_v1(v_id);
  insert into {ns}.lease
      (key_id, execution_id, owner, ttl, session_lock, backend_pid, backend_start, acquired_at, heartbeat_at, expires_at)
    values (v_id, a.execution_id, p_owner, p_ttl, p_session, pg_backend_pid(), p_backend_start, v_now, v_now, v_now + p_ttl);
  if v_dead.session_lock and p_session and not a.locked then      -- a dead holder's session still has it and may be terminated
    a.backend_pid := v_dead.backend_pid; a.backend_start := v_dead.backend_start::text;
  end if;
  perform {ns}.notify_v1(v_id);
  return a;
exception
  when lock_not_available then
    if v_got then perform pg_advisory_unlock(v_class, v_id); end if;
    a := null;
    a.answer := 'again'; a.reason := 'fenced'; a.after := 0; a.ends_in := 0;
    a.backend_pid := {ns}.fence_holder_v1(v_id);
    return a;
  when query_canceled or others then      -- a session lock survives the abort of its transaction
    if v_got then perform pg_advisory_unlock(v_class, v_id); end if;
    raise;
end $$;

-- What a firing calls: the decision and the skip.  If the backend is the client's own (it has libpq's backend pid, so there is
-- no transaction pooler), also the settings that free the lock soon after packets stop.
create function {ns}.claim_v1(
  p_key text, p_shard integer, p_tick text, p_tick_at double precision, p_rule text, p_owner uuid,
  p_host text, p_pid integer, p_user text, p_command text, p_fired_at double precision, p_host_now double precision,
  p_ttl double precision, p_min_gap double precision, p_starting_deadline double precision, p_again boolean,
  p_schedule text, p_zone text, p_shards integer, p_failover boolean, p_retries integer, p_max_skew double precision,
  p_client_backend integer, p_backend_start timestamptz, p_watched timestamptz, p_alone boolean, p_awaited bigint
) returns {ns}.answer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  a {ns}.answer;
  v_session boolean := p_client_backend is not distinct from pg_backend_pid();
begin
  if pg_is_in_recovery() then     -- a standby grants advisory locks that its primary has already granted
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
    make_interval(secs => p_starting_deadline), p_again, p_schedule, p_zone, p_shards, p_failover, p_retries,
    make_interval(secs => p_max_skew), v_session, p_backend_start, p_watched, p_alone, p_awaited);
  if a.answer = 'refused' and not (a.reason = 'held' and p_awaited is not null) then
    begin
      perform {ns}.skip_v1(p_key, p_shard, p_tick, p_host, a.reason, p_pid, p_fired_at, a.holder_host, a.holder_pid,
        a.detail, null, 1, null);
    exception when others then      -- a skip that cannot be recorded does not change the answer
      raise log 'oncecron: skip of key % not recorded: %', p_key, sqlerrm;
    end;
  end if;
  return a;
end $$;
