-- Functions that several others use.

create function {ns}.epoch(timestamptz) returns double precision
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$ select extract(epoch from $1)::float8 $$;

create function {ns}.key_id_v1(p_key text, p_shard integer) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id integer;
begin
  -- SELECT first: an INSERT that conflicts would use up an identity value at every firing.
  select k.key_id into v_id from {ns}.job_key k where k.key = p_key and k.shard = p_shard;
  if v_id is null then
    insert into {ns}.job_key (key, shard) values (p_key, p_shard) on conflict (key, shard) do nothing;
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
       and x.classid = '{ns}.job_key'::regclass and x.objid = p_key_id::oid)
    or pg_try_advisory_lock('{ns}.job_key'::regclass::oid::int4, p_key_id)
$$;

-- The session that holds it.
create function {ns}.lock_holder_v1(p_key_id integer) returns integer
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select x.pid from pg_locks x
   where x.locktype = 'advisory' and x.objsubid = 2 and x.granted
     and x.database = (select d.oid from pg_database d where d.datname = current_database())
     and x.classid = '{ns}.job_key'::regclass and x.objid = p_key_id::oid
$$;

-- Whether that session is in the middle of a claim or an end: it is in a transaction, or has just ended.
create function {ns}.lock_busy_v1(p_key_id integer) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select h.pid is null or exists (select from pg_locks x where x.locktype = 'virtualxid' and x.pid = h.pid)
    from {ns}.lock_holder_v1(p_key_id) h (pid)
$$;

-- A session whose transaction has checked its fence and has not ended.  The row's FOR SHARE lock stands in xmax: a transaction
-- id, or where several share it a multixact id, which looks alike; each backend holds its transaction id's own lock.
create function {ns}.fence_holder_v1(p_key_id integer) returns integer
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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

create function {ns}.notify_v1(p_key_id integer) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select pg_notify({ns}.channel_v1(x.key_id), '') from {ns}.listened x where x.key_id = p_key_id
$$;

-- A skip is a row per (key, tick, host, reason) with a count.  It does not wait for the disk, unless it is delivered from a spool,
-- where it is then removed; a delivered one is identified by its firing's owner.
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

-- Join notes into one text without repetition.
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
  return v_text;
end $$;

-- Executions without a lease are lost, and so is one whose host died between two attempts; the fencing token rises.
create function {ns}.lose_v1(l {ns}.lease, p_key_id integer, p_reason text, p_note text, p_now timestamptz) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  update {ns}.job_execution x
     set outcome = 'lost', lost_at = p_now, lost_reason = p_reason, note = {ns}.joined_v1(x.note, p_note)
   where x.key_id = p_key_id and x.outcome = 'running';
  update {ns}.job_execution x
     set lost_at = p_now, lost_reason = p_reason, note = {ns}.joined_v1(x.note, p_note)
   where x.execution_id = l.execution_id and x.retrying and x.lost_at is null;
  update {ns}.job_key x set fence = greatest(x.fence + 1, ({ns}.epoch(p_now) * 1e6)::bigint) where x.key_id = p_key_id;
end $$;
