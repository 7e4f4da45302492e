-- The claim.  What it answers is decided by decide_v1, step by step as store.py tells it.

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
