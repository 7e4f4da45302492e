-- The delivery of spooled records, and of records for a log store, where another store has the leases.

-- The end of an execution that this store knows. False: it had one.
create function {ns}.deliver_end_v1(p jsonb, e {ns}.job_execution) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_held boolean;
  v_ends boolean;
  v_late text := case when (p ->> 'late')::boolean then 'recorded later' end;
begin
  select coalesce(k.execution_id = e.execution_id, false) into v_held
    from {ns}.job_key k where k.key_id = e.key_id for no key update;
  update {ns}.job_execution x
     set outcome = p ->> 'outcome', exit_code = (p ->> 'exit_code')::int, signal = (p ->> 'signal')::int,
         duration = (p ->> 'duration')::float8, finished_at = to_timestamp((p ->> 'finished_at')::float8),
         note = {ns}.joined_v1(x.note, p ->> 'note', v_late), lost_reason = coalesce(p ->> 'lost_reason', x.lost_reason),
         request = coalesce(p ->> 'request', x.request), requested_by = coalesce(p ->> 'requested_by', x.requested_by),
         place = coalesce(p ->> 'place', x.place)
   where x.execution_id = e.execution_id and (x.outcome = 'running' or x.outcome = 'lost' and x.duration is null);
  v_ends := found or v_held;
  if found then
    perform {ns}.put_output_v1(e.execution_id, p ->> 'output', (p ->> 'output_cut')::bigint);
  else
    v_held := {ns}.give_up_v1(e.execution_id, e.owner, p ->> 'note', v_late) or v_held;
  end if;
  perform {ns}.settle_v1(e.key_id, v_held);
  if v_held then perform {ns}.notify_v1(e.key_id); end if;
  return v_ends;
end $$;

-- Insert an execution that this store never saw, numbered above the other attempts of its tick. False: it is there.
create function {ns}.insert_late_v1(p jsonb, p_key_id integer, p_outcome text, p_lost_reason text, p_note text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_attempt integer;
  v_id bigint;
begin
  for v_try in 1 .. 100 loop
    select greatest((p ->> 'attempt')::int, max(x.attempt) + 1)
      into v_attempt from {ns}.job_execution x where x.key_id = p_key_id and x.tick = p ->> 'tick';
    begin
      insert into {ns}.job_execution
          (key_id, tick, tick_at, attempt, owner_attempt, outcome, exit_code, signal, host, pid, user_name, command, fired_at,
           started_at, finished_at, duration, fencing_token, owner, shards, retries, cause, lost_reason, request, requested_by, note,
           place)
        values (p_key_id, p ->> 'tick', to_timestamp((p ->> 'tick_instant')::float8), v_attempt, (p ->> 'attempt')::int, p_outcome,
          (p ->> 'exit_code')::int, (p ->> 'signal')::int, p ->> 'host', (p ->> 'pid')::int, p ->> 'user', p ->> 'command',
          to_timestamp((p ->> 'fired_at')::float8), to_timestamp((p ->> 'started_at')::float8),
          to_timestamp((p ->> 'finished_at')::float8), (p ->> 'duration')::float8, (p ->> 'fencing_token')::bigint,
          (p ->> 'owner')::uuid, coalesce((p ->> 'shards')::int, 1), coalesce((p ->> 'retries')::int, 0),
          p ->> 'cause', p_lost_reason, p ->> 'request', p ->> 'requested_by', p_note, p ->> 'place')
        returning execution_id into v_id;
      perform {ns}.put_output_v1(v_id, p ->> 'output', (p ->> 'output_cut')::bigint);
      return true;
    exception when unique_violation then
      if exists (select from {ns}.job_execution x
                  where x.owner = (p ->> 'owner')::uuid and x.key_id = p_key_id and x.owner_attempt = (p ->> 'attempt')::int) then
        return false;
      end if;
    end;
  end loop;
  return true;
end $$;

-- What such an execution writes on its key. It ran, so its tick and those before it are passed. What the wrong clock of
-- its host, or another role, has made up counts no further than this server believes it.
create function {ns}.mark_key_v1(p jsonb, p_key_id integer) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_at timestamptz := to_timestamp((p ->> 'tick_instant')::float8);
  v_ran boolean := p ->> 'outcome' <> 'not-started';
  v_token bigint := p ->> 'fencing_token';
  v_most bigint := {ns}.believable_token(0);
  v_started_at timestamptz := least(to_timestamp((p ->> 'started_at')::float8), clock_timestamp());
begin
  update {ns}.job_key x
     set version = {ns}.next_number(x.version), fence = greatest(x.fence, case when v_token > v_most then v_most else v_token end),
         seen_until = greatest(x.seen_until, v_at), tick_known = x.tick_known and x.tick is distinct from p ->> 'tick',
         high_water = case when v_ran then {ns}.marked(x.high_water, v_at) else x.high_water end
   where x.key_id = p_key_id;
  update {ns}.job_key x
     set version = {ns}.next_number(x.version), last_started_at = v_started_at, last_execution_id = null,
         last_lateness = mod((p ->> 'fired_at')::numeric, 60)
   where x.key_id = p_key_id and v_ran and (x.last_started_at < v_started_at or {ns}.is_ahead(x.last_started_at)) is not false;
  perform {ns}.divide_v1(p ->> 'key', p ->> 'tick', v_at, coalesce((p ->> 'shards')::int, 1));
end $$;

-- Delivers a record. It is idempotent by (owner, attempt), replaces `running` and `lost` by what happened, releases
-- only its own lease, inserts what this store never saw, and never fails on a conflict.
--
-- With ages, a record that ends an execution also removes a few expired rows, as an end does. A caller can make up such
-- a record, as it can claim and end a tick of its own. By neither does a row go that is younger than the least
-- retention, which only the owner sets.
create function {ns}.deliver_v1(p jsonb, p_keep_executions double precision, p_keep_skips double precision) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  e {ns}.job_execution;
  v_fence bigint;
  v_leased bigint;
  v_ends boolean;
  v_id integer := {ns}.register_v1(p ->> 'key', (p ->> 'shard')::int);
  v_outcome text := p ->> 'outcome';
  v_note text := p ->> 'note';
  v_lost_reason text := p ->> 'lost_reason';
  v_token bigint := (p ->> 'fencing_token')::bigint;
  v_unfinished constant text := 'its end was not recorded';
begin
  if p ->> 'kind' = 'skip' then
    perform {ns}.skip_v1(p ->> 'key', (p ->> 'shard')::int, p ->> 'tick', p ->> 'host', p ->> 'reason', (p ->> 'pid')::int,
      p ->> 'holder_host', (p ->> 'holder_pid')::int, p ->> 'detail', (p ->> 'fired_at')::float8,
      (p ->> 'at')::float8, coalesce((p ->> 'count')::bigint, 1), p ->> 'owner');
    return;
  end if;
  -- By the owner's number of the attempt; an owner that gave up without a number means its newest.
  select x.* into e from {ns}.job_execution x
    where x.owner = (p ->> 'owner')::uuid and x.key_id = v_id
      and x.owner_attempt = coalesce((p ->> 'attempt')::int, x.owner_attempt)
    order by x.owner_attempt desc limit 1;
  if found then
    if v_outcome <> 'running' and {ns}.deliver_end_v1(p, e) and p_keep_executions is not null then
      perform {ns}.prune_quietly_v1(v_id, p_keep_executions, p_keep_skips);
    end if;
    return;
  end if;
  if v_outcome = 'not-started' and v_token is null then return; end if;
  -- A higher token: a later start has the key.  An earlier one without a lease here ended without a record.
  select k.fence, k.execution_id into v_fence, v_leased from {ns}.job_key k where k.key_id = v_id for update;
  if v_token >= v_fence then
    update {ns}.job_execution x
       set outcome = 'lost', lost_at = clock_timestamp(), lost_reason = 'superseded', note = {ns}.joined_v1(x.note, v_unfinished)
     where x.key_id = v_id and x.outcome = 'running'
       and x.execution_id is distinct from v_leased;
  end if;
  if v_outcome = 'running' and (coalesce(v_token, 0) < v_fence or v_leased is not null
       or exists (select from {ns}.job_execution x where x.key_id = v_id and x.outcome = 'running')) then
    v_outcome := 'lost';
    v_lost_reason := 'superseded';
    v_note := {ns}.joined_v1(v_note, v_unfinished);
  end if;
  v_note := {ns}.joined_v1(v_note, case when (p ->> 'late')::boolean then 'recorded later' end);
  if {ns}.insert_late_v1(p, v_id, v_outcome, v_lost_reason, v_note) then
    perform {ns}.mark_key_v1(p, v_id);
    v_ends := p ->> 'outcome' <> 'running' and p_keep_executions is not null;
  end if;
  perform {ns}.settle_v1(v_id, false);
  if v_ends then perform {ns}.prune_quietly_v1(v_id, p_keep_executions, p_keep_skips); end if;
end $$;
