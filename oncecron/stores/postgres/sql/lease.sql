-- What a firing calls with a lease, the delivery of spooled records, and the fence check of a job.

-- Makes the connection readable when something happens to the part. It does nothing behind a transaction pooler, where
-- the connection is shared. True: something has already happened.
create function {ns}.listen_v1(p_key text, p_shard integer, p_owner uuid, p_awaited bigint, p_client_backend integer) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id integer;
  k    {ns}.job_key;
begin
  if p_client_backend is distinct from pg_backend_pid() then return null; end if;
  v_id := {ns}.register_v1(p_key, p_shard);
  execute format('listen %I', {ns}.channel_v1(v_id));
  select x.* into k from {ns}.job_key x where x.key_id = v_id;
  if k.owner = p_owner then
    return k.request_kind is not null and k.request_acknowledged_at is null;
  end if;
  if not k.listened then
    update {ns}.job_key x set version = {ns}.next_number(x.version), listened = true where x.key_id = v_id;
  end if;
  return p_awaited is not null and k.execution_id is distinct from p_awaited;
end $$;

-- A heartbeat: compare-and-set on (execution, owner). Null: lost for good. It sets the expiry, even if the old one was
-- later. On a new backend (a re-adoption) it also takes the session lock again, if it is free. It returns the request
-- to the holder, which has heard it then; p_listens: false for a claim that was sent again. p_place: null if it has not changed.
create function {ns}.renew_v1(
  p_execution_id bigint, p_owner uuid, p_locked boolean, p_client_backend integer, p_backend_start timestamptz, p_listens boolean,
  p_place text default null,
  out locked boolean, out request text, out requested_by text, out request_signal integer, out request_grace double precision
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  k {ns}.job_key;
  v_session boolean := p_client_backend is not distinct from pg_backend_pid();
begin
  update {ns}.job_key x
     set version = {ns}.next_number(x.version), heartbeat_at = clock_timestamp(), expires_at = clock_timestamp() + x.ttl,
         session_lock = v_session, backend_pid = case when v_session then pg_backend_pid() end,
         backend_start = case when v_session then coalesce(p_backend_start, x.backend_start) end,
         request_acknowledged_at = case when p_listens and x.request_kind is not null
                                        then coalesce(x.request_acknowledged_at, clock_timestamp())
                                        else x.request_acknowledged_at end
    from {ns}.job_execution e
   where e.execution_id = p_execution_id and x.key_id = e.key_id and x.execution_id = p_execution_id and x.owner = p_owner
  returning x.* into k;
  if not found then return; end if;
  if p_place is not null then
    update {ns}.job_execution x set place = p_place where x.execution_id = p_execution_id;
  end if;
  if not p_locked and abs(p_client_backend) = pg_backend_pid() then     -- a new session
    perform {ns}.set_up_session_v1(date_part('epoch'::text, k.ttl::interval));
  end if;
  locked := p_locked or v_session and {ns}.take_lock_v1(k.key_id);
  if not p_listens then return; end if;
  request := k.request_kind; requested_by := k.request_author;
  request_signal := k.request_signal; request_grace := k.request_grace;
end $$;

-- The store has lost the execution of a running holder (a failover to a standby that did not have it). It is put back
-- with its old token, but only if no claim of the key was granted since, and if the token is believable: it becomes the
-- key's.
create function {ns}.adopt_v1(
  p_key text, p_shard integer,
  p_tick text, p_tick_instant double precision, p_owner uuid, p_host text, p_pid integer, p_user text, p_command text,
  p_fired_at double precision, p_shards integer, p_retries integer,
  p_attempt integer, p_started_at double precision, p_fencing_token bigint, p_ttl double precision, p_cause text,
  p_client_backend integer, p_backend_start timestamptz, p_place text default null
) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  k {ns}.job_key;
  v_id integer := {ns}.register_v1(p_key, p_shard);
  v_execution bigint;
  v_now timestamptz;
  v_tick_at timestamptz := to_timestamp(p_tick_instant);
  v_started_at timestamptz := least(to_timestamp(p_started_at), clock_timestamp());
  v_session boolean := p_client_backend is not distinct from pg_backend_pid();
begin
  perform set_config('lock_timeout', '2s', true);
  select x.* into strict k from {ns}.job_key x where x.key_id = v_id for update;
  if k.fence >= p_fencing_token or p_fencing_token > {ns}.believable_token(k.fence) or exists (select from {ns}.job_execution x where x.owner = p_owner and x.key_id = k.key_id)
     or k.owner is not null then
    return null;
  end if;
  update {ns}.job_execution x
     set outcome = 'lost', lost_at = clock_timestamp(), lost_reason = 'superseded',
         note = {ns}.joined_v1(x.note, 'running without a lease')
    where x.key_id = k.key_id and x.outcome = 'running';
  insert into {ns}.job_execution
      (key_id, tick, tick_at, attempt, owner_attempt, outcome, host, pid, user_name, command, fired_at, started_at, fencing_token,
       owner, shards, retries, cause, note, place)
    values (k.key_id, p_tick, v_tick_at, p_attempt, p_attempt, 'running', p_host, p_pid, p_user, p_command, to_timestamp(p_fired_at),
            to_timestamp(p_started_at), p_fencing_token, p_owner, p_shards, p_retries, p_cause, 'put back: the store had lost it', p_place)
    returning execution_id into v_execution;
  v_now := clock_timestamp();
  update {ns}.job_key x
     set version = {ns}.next_number(x.version), fence = p_fencing_token, high_water = {ns}.marked(x.high_water, v_tick_at),
         seen_until = greatest(x.seen_until, v_tick_at), running = v_execution, owner = p_owner, execution_id = v_execution,
         ttl = make_interval(secs => p_ttl), session_lock = v_session,
         backend_pid = case when v_session then pg_backend_pid() end,
         backend_start = case when v_session then p_backend_start end, acquired_at = v_now, heartbeat_at = v_now,
         expires_at = v_now + make_interval(secs => p_ttl), newest_id = v_execution, tick = p_tick, tick_known = false,
         tick_attempt = p_attempt, newest_outcome = 'running', retrying = false, requested_by = null, host = p_host, pid = p_pid,
         user_name = p_user, newest_started_at = v_started_at, newest_owner = p_owner, last_execution_id = v_execution,
         last_started_at = v_started_at
   where x.key_id = k.key_id;
  perform {ns}.divide_v1(p_key, p_tick, v_tick_at, p_shards);
  if v_session then perform {ns}.take_lock_v1(k.key_id); end if;
  return v_execution;
exception when unique_violation then
  return null;
end $$;

-- The captured output of an execution; the first one delivered stays.
create function {ns}.put_output_v1(p_execution_id bigint, p_output text, p_cut bigint) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into {ns}.job_output (execution_id, output, cut) select p_execution_id, p_output, coalesce(p_cut, 0) where p_output is not null
    on conflict (execution_id) do nothing
$$;

-- The end of an attempt that a retry is to follow: the lease is kept and renewed.
create function {ns}.keep_v1(
  p_execution_id bigint, p_owner uuid, p_outcome text, p_exit_code integer, p_signal integer, p_duration double precision,
  p_note text, p_output text, p_output_cut bigint, p_place text default null
) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  update {ns}.job_key x
     set version = {ns}.next_number(x.version), heartbeat_at = clock_timestamp(), expires_at = clock_timestamp() + x.ttl,
         newest_outcome = case when e.outcome = 'running' then p_outcome else x.newest_outcome end, retrying = true, running = null
    from {ns}.job_execution e
   where e.execution_id = p_execution_id and x.key_id = e.key_id and x.execution_id = p_execution_id and x.owner = p_owner;
  if not found then return false; end if;
  update {ns}.job_execution x
     set outcome = p_outcome, exit_code = p_exit_code, signal = p_signal, duration = p_duration, finished_at = clock_timestamp(),
         retrying = true, note = {ns}.joined_v1(x.note, p_note), place = coalesce(p_place, x.place)
   where x.execution_id = p_execution_id and x.outcome = 'running';
  if found and p_output is not null then perform {ns}.put_output_v1(p_execution_id, p_output, p_output_cut); end if;
  return true;
end $$;

-- The next attempt under the lease that was kept; no answer: the lease is lost. A repeated call returns the same
-- attempt. A request to the holder was for the attempt before. A pause or a drain, if there is one, is the answer.
create function {ns}.retry_v1(
  p_execution_id bigint, p_owner uuid, p_locked boolean, p_client_backend integer, p_backend_start timestamptz,
  out stop_kind text, out stop_author text, out stop_reason text, out stop_since double precision,
  out execution_id bigint, out attempt integer, out fencing_token bigint, out started_at double precision, out cause text,
  out locked boolean, out place text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms' as $$
declare
  k     {ns}.job_key;
  e     {ns}.job_execution;     -- the last attempt, and then the one that runs
  v_now timestamptz;
  v_session boolean := p_client_backend is not distinct from pg_backend_pid();
begin
  lock table {ns}.job_key in row exclusive mode;     -- a pause that is being written is waited for
  select x.* into e from {ns}.job_execution x where x.execution_id = p_execution_id and x.owner = p_owner;
  select x.* into k from {ns}.job_key x where x.key_id = e.key_id and x.owner = p_owner for update;
  if not found then return; end if;
  v_now := clock_timestamp();
  if k.execution_id = p_execution_id and k.retrying then
    select x.kind, x.author, x.reason, date_part('epoch', x.created_at) into stop_kind, stop_author, stop_reason, stop_since
      from {ns}.stop_v1(k.key, e.host) x;
    if stop_kind is not null then return; end if;
    insert into {ns}.job_execution
        (key_id, tick, tick_at, attempt, owner_attempt, outcome, host, pid, user_name, command, fired_at, started_at, fencing_token,
         owner, shards, retries, cause, place)
      select e.key_id, e.tick, e.tick_at, n.attempt, n.attempt, 'running', e.host, e.pid, e.user_name, e.command, e.fired_at, v_now,
             {ns}.next_number(k.fence), e.owner, e.shards, e.retries, 'retry', e.place
        from (select 1 + greatest(e.attempt, max(x.attempt)) as attempt
                from {ns}.job_execution x where x.key_id = e.key_id and x.tick = e.tick) n
      returning * into e;
    update {ns}.job_key x
       set version = {ns}.next_number(x.version), fence = e.fencing_token, running = e.execution_id,
           execution_id = e.execution_id, request_kind = null, request_author = null, request_signal = null, request_grace = null,
           request_acknowledged_at = null, newest_id = e.execution_id, tick_known = true, tick_attempt = e.attempt,
           newest_outcome = 'running', retrying = false, requested_by = null, newest_started_at = v_now,
           last_execution_id = e.execution_id, last_started_at = v_now,
           previous_started_at = x.last_started_at, previous_lateness = x.last_lateness
     where x.key_id = e.key_id;
    perform {ns}.notify_v1(e.key_id);
  elsif k.execution_id = p_execution_id or k.newest_outcome <> 'running' then
    return;
  else
    select x.* into e from {ns}.job_execution x where x.execution_id = k.execution_id;
  end if;
  update {ns}.job_key x
     set version = {ns}.next_number(x.version), heartbeat_at = v_now, expires_at = v_now + x.ttl, session_lock = v_session,
         backend_pid = case when v_session then pg_backend_pid() end,
         backend_start = case when v_session then coalesce(p_backend_start, x.backend_start) end
   where x.key_id = e.key_id;
  execution_id := e.execution_id; attempt := e.attempt; fencing_token := e.fencing_token;
  started_at := date_part('epoch', e.started_at); cause := e.cause; place := e.place;
  locked := p_locked or v_session and {ns}.take_lock_v1(e.key_id);
end $$;

-- The owner gives up after an attempt that it had kept. This is final, unless another firing has taken over. A next
-- attempt whose answer the owner never got did not start. Returns whether the owner still had the key's lease. The
-- caller has locked the key's row.
create function {ns}.give_up_v1(p_execution_id bigint, p_owner uuid, variadic p_notes text[]) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  e        {ns}.job_execution;
  v_leased bigint;
begin
  select x.* into e from {ns}.job_execution x where x.execution_id = p_execution_id and x.owner = p_owner and x.retrying;
  if not found then return false; end if;
  select k.execution_id into v_leased from {ns}.job_key k where k.key_id = e.key_id and k.owner = p_owner;
  if v_leased <> p_execution_id then
    update {ns}.job_execution x
       set outcome = 'not-started', duration = 0, finished_at = clock_timestamp(),
           note = {ns}.joined_v1(x.note, 'its owner never got the answer')
      where x.execution_id = v_leased and x.outcome = 'running';
  end if;
  update {ns}.job_execution x
     set retrying = false, note = {ns}.joined_v1(variadic x.note::text || p_notes)
   where x.execution_id = p_execution_id;
  return v_leased is not null;
end $$;

-- Whether an end removes expired rows: one of {ends_per_prune}, by chance, and those of a key of which more may be left.
create function {ns}.prunes(p_prunes boolean) returns boolean
language sql volatile as $$ select p_prunes or pg_catalog.random() < float8 '1' / float8 '{ends_per_prune}' $$;

-- The plain end of what the key's row has as running, with its lease: two updates. Without an answer nothing was written.
create function {ns}.finish_plainly_v1(
  p_execution_id bigint, p_owner uuid, p_outcome text, p_exit_code integer, p_signal integer, p_duration double precision,
  out key_id integer, out prunes boolean
)
language sql volatile set search_path = pg_catalog, pg_temp as $$
  with freed as (
    update {ns}.job_key k
       set version = {ns}.next_number(k.version), running = null, newest_outcome = p_outcome, owner = null, execution_id = null,
           session_lock = null, backend_pid = null, backend_start = null, acquired_at = null, heartbeat_at = null, expires_at = null,
           request_kind = null, request_author = null, request_signal = null, request_grace = null, request_acknowledged_at = null,
           prunes = {ns}.prunes(k.prunes)
      from {ns}.job_execution e
     where e.execution_id = p_execution_id and k.key_id = e.key_id
       and k.running = p_execution_id and k.execution_id = p_execution_id and k.owner = p_owner
    returning k.key_id, k.listened, k.prunes),
  ended as (
    update {ns}.job_execution e
       set outcome = p_outcome, exit_code = p_exit_code, signal = p_signal, duration = p_duration, finished_at = clock_timestamp()
      from freed where e.execution_id = p_execution_id)
  select f.key_id, f.prunes from freed f where not f.listened or pg_notify({ns}.channel_v1(f.key_id), '')::text is not null
$$;

-- Any other end: with a note, an output, a request or a place, or where the lease is lost.
create function {ns}.finish_otherwise_v1(
  p_execution_id bigint, p_owner uuid, p_outcome text, p_exit_code integer, p_signal integer, p_duration double precision,
  p_note text, p_output text, p_cut bigint, p_lost_reason text, p_request text, p_requested_by text,
  p_keep_executions double precision, p_keep_skips double precision, p_place text
) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  k      {ns}.job_key;
  v_held boolean;
  v_ends boolean;
begin
  select x.* into k from {ns}.job_key x
    where x.key_id = (select e.key_id from {ns}.job_execution e where e.execution_id = p_execution_id and e.owner = p_owner)
    for no key update;
  v_held := coalesce(k.execution_id = p_execution_id and k.owner = p_owner, false);
  update {ns}.job_execution x
     set outcome = p_outcome, exit_code = p_exit_code, signal = p_signal, duration = p_duration, finished_at = clock_timestamp(),
         lost_at = case when not v_held then coalesce(x.lost_at, clock_timestamp()) end,
         note = case when v_held and p_note is null then x.note
                     else {ns}.joined_v1(x.note, p_note, case when not v_held then 'ended after its lease was lost' end) end,
         lost_reason = coalesce(p_lost_reason, case when not v_held then coalesce(x.lost_reason, 'revoked') end),
         request = coalesce(p_request, x.request), requested_by = coalesce(p_requested_by, x.requested_by),
         place = coalesce(p_place, x.place)
   where x.execution_id = p_execution_id and x.owner = p_owner and (x.outcome = 'running' or x.outcome = 'lost' and x.duration is null);
  v_ends := found or v_held;
  if not found then
    v_held := {ns}.give_up_v1(p_execution_id, p_owner, p_note) or v_held;
  elsif p_output is not null then
    perform {ns}.put_output_v1(p_execution_id, p_output, p_cut);
  end if;
  perform {ns}.settle_v1(k.key_id, v_held);
  if v_held and k.listened then perform pg_notify({ns}.channel_v1(k.key_id), ''); end if;
  if v_ends and p_keep_executions is not null and {ns}.prunes(k.prunes) then
    perform {ns}.prune_quietly_v1(k.key_id, p_keep_executions, p_keep_skips);
  end if;
  -- A repeated call (its answer was lost) has the same answer.
  if v_held then return true; end if;
  return exists (
    select from {ns}.job_execution x where x.execution_id = p_execution_id and x.owner = p_owner and x.lost_at is null);
end $$;

-- The end.  It does not release the session lock, which would take effect before the commit; closing the session does.
-- Only a call that ends something also removes expired rows, if it has ages: one for an unknown execution, or a repeated
-- one, does not. PL/pgSQL and retention are for what is not plain alone, or now and then: the first costs a new session as much as
-- the plain end, the second five times as much.
create function {ns}.finish_v1(
  p_execution_id bigint, p_owner uuid, p_outcome text, p_exit_code integer, p_signal integer, p_duration double precision,
  p_note text, p_output text, p_output_cut bigint, p_lost_reason text, p_request text, p_requested_by text,
  p_keep_executions double precision, p_keep_skips double precision, p_place text default null
) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select case when x.key_id is null then {ns}.finish_otherwise_v1(p_execution_id, p_owner, p_outcome, p_exit_code, p_signal,
                p_duration, p_note, p_output, p_output_cut, p_lost_reason, p_request, p_requested_by, p_keep_executions, p_keep_skips, p_place)
              else p_keep_executions is null or not x.prunes
                or {ns}.prune_quietly_v1(x.key_id, p_keep_executions, p_keep_skips)::text is not null end
    from {ns}.finish_plainly_v1(
      case when p_outcome <> 'not-started' and coalesce(p_note, p_output, p_lost_reason, p_request, p_requested_by, p_place) is null
           then p_execution_id end,
      p_owner, p_outcome, p_exit_code, p_signal, p_duration) x
$$;

-- For a job's own transaction: it fails if the token is stale, and a takeover waits until the transaction ends. The
-- message keeps the present token: who has it may write as the present holder. 0 is the fence of a key without a start.
create function {ns}.assert_fence(p_key text, p_token bigint, p_shard integer default 0) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_fence bigint;
begin
  select k.fence into v_fence from {ns}.job_key k where k.key = p_key and k.shard = p_shard for key share;
  if (v_fence = p_token and p_token > 0) is not true then
    raise exception using errcode = 'OC001',
      message = format('stale fencing token %s for key %s: it is not the key''s present token', p_token, p_key);
  end if;
end $$;
