-- Retention.

-- Remove executions of the log whose rows are locked. A key whose newest start is among them knows it no more; where
-- its row is locked just now, that execution stays for the next time.
create function {ns}.remove_executions_v1(p_ids bigint[]) returns bigint
language sql volatile set search_path = pg_catalog, pg_temp as $$
  with old as materialized (
    select e.execution_id, e.key_id, k.newest_id = e.execution_id as is_newest
      from {ns}.job_execution e join {ns}.job_key k using (key_id) where e.execution_id = any (p_ids)),
  keys as materialized (
    select k.key_id from {ns}.job_key k
     where k.key_id in (select o.key_id from old o where o.is_newest) for no key update skip locked),
  forgotten as (
    update {ns}.job_key k
       set version = {ns}.next_number(k.version), newest_id = null, newest_owner = null, tick_known = false
      from keys x where k.key_id = x.key_id),
  gone as (
    delete from {ns}.job_execution e using old o
     where e.execution_id = o.execution_id and (o.is_newest is not true or o.key_id in (select x.key_id from keys x))
    returning 1)
  select count(*) from gone
$$;

-- Records older than this may go: than the caller's ages, and than the owner's, which meta has.
create function {ns}.expiry_v1(
  p_keep_executions double precision, p_keep_skips double precision, out executions timestamptz, out skips timestamptz
)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select now() - make_interval(secs => greatest(p_keep_executions, m.least_executions)),
         now() - make_interval(secs => greatest(p_keep_skips, m.least_skips)) from {ns}.meta m
$$;

-- Remove at most p_most executions of a key's names. Only the log keeps named ticks unique, so the newest p_names are kept
-- however old they are, with all their attempts: each has one first attempt, and it is the first in the log. An execution
-- that has ended has a lease only if a retry is to follow.
create function {ns}.expire_names_v1(p_key_id integer, p_before timestamptz, p_most bigint, p_names integer) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_name bigint;
begin
  select y.execution_id into v_name from {ns}.job_execution y
    where y.key_id = p_key_id and y.tick is not null and y.tick_at is null and y.attempt::int = 1
    order by y.execution_id desc offset p_names - 1 limit 1;
  if v_name is null then return 0; end if;
  return {ns}.remove_executions_v1(array(
    select y.execution_id from {ns}.job_execution y
     where y.key_id = p_key_id and y.tick is not null and y.tick_at is null and y.execution_id < v_name
       and y.started_at < p_before and y.outcome <> 'running'
       and (not y.retrying or not exists (select from {ns}.job_key k where k.key_id = y.key_id and k.execution_id = y.execution_id))
     order by y.execution_id limit p_most for update skip locked));
end $$;

-- Plain skips whose newest tick is before this minute have expired: each happened at most 500 s after its tick.
create function {ns}.plain_expiry(p_before timestamptz) returns integer
language sql immutable parallel safe as $$ select floor(pg_catalog.date_part('epoch', p_before) / 60)::integer - 9 $$;

-- Forget hosts that have not fired a key for long, and the last plain skips of hosts that have not since they expired.
create function {ns}.expire_hosts_v1(p_key_id integer, p_skips timestamptz) returns bigint
language sql volatile set search_path = pg_catalog, pg_temp as $$
  delete from {ns}.key_host x where (x.key_id, x.host) in (
    select y.key_id, y.host from {ns}.key_host y
     where y.key_id = p_key_id and y.seen_at < now() - make_interval(secs => {host_forgotten_after}) for update skip locked)
  returning {ns}.put_away_v1(x.key_id, x.host, x.plain_from, x.plain);
  with expired as materialized (
    select y.key_id, y.host, cardinality(y.plain) as plain from {ns}.key_host y
     where y.key_id = p_key_id and y.seen_at < p_skips and y.plain <> '{}' for update skip locked),
  emptied as (
    update {ns}.key_host x set plain = '{}' from expired e where x.key_id = e.key_id and x.host = e.host)
  select coalesce(sum(e.plain), 0)::bigint from expired e
$$;

-- What expires with its tick: nothing. The tables of items bring a function of this name in its place. It returns how many rows
-- are gone, at most p_most.
create function {ns}.expire_items_v1(p_before timestamptz, p_most bigint) returns bigint
language sql volatile set search_path = pg_catalog, pg_temp as $$ select 0::bigint $$;

-- For people: remove at most p_most expired executions and as many skips, and rows of expired lists of items. Of named
-- ticks, only the given key's are examined. It reads the whole log by the time of starts. It uses now(), because
-- clock_timestamp() is volatile and uses no index, and plans for the given ages.
create function {ns}.prune_v1(
  p_key_id integer, p_keep_executions interval, p_keep_skips interval, p_most bigint, p_names integer,
  out executions bigint, out skips bigint, out items bigint
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
  v_expired record;
  v_plain bigint;
begin
  select * into strict v_expired
    from {ns}.expiry_v1(date_part('epoch', p_keep_executions), date_part('epoch', p_keep_skips));
  executions := {ns}.remove_executions_v1(array(
    select y.execution_id from {ns}.job_execution y
     where y.started_at < v_expired.executions and y.outcome <> 'running' and (y.tick is null or y.tick_at is not null)
       and (not y.retrying or not exists (select from {ns}.job_key k where k.key_id = y.key_id and k.execution_id = y.execution_id))
     limit p_most for update skip locked));
  with gone as (
    delete from {ns}.skip x where x.ctid in (
      select y.ctid from {ns}.skip y where y.at < v_expired.skips limit p_most for update skip locked)
    returning 1)
  select count(*) into skips from gone;
  with gone as (
    delete from {ns}.plain_skips x where x.ctid in (
      select y.ctid from {ns}.plain_skips y
       where y.plain_until < {ns}.plain_expiry(v_expired.skips) limit p_most for update skip locked)
    returning cardinality(x.plain) as plain)
  select coalesce(sum(g.plain), 0) into v_plain from gone g;
  skips := skips + v_plain + {ns}.expire_hosts_v1(p_key_id, v_expired.skips);
  perform {ns}.end_pauses_v1();
  executions := executions + {ns}.expire_names_v1(p_key_id, v_expired.executions, p_most, p_names);
  items := {ns}.expire_items_v1(v_expired.executions, 20 * p_most);     -- the rows are small
end $$;

-- Remove the oldest expired rows of one key: at most 100 executions and 1,000 skips. What it reads does not depend on the size
-- of the log: the first rows of an index, in the order of ids, and nothing more if the first one is young. `between` instead
-- of `=` makes that order the only one that fits (reader.sql). True: it has removed that many, so there may be more.
create function {ns}.prune_key_v1(p_key_id integer, p_executions timestamptz, p_skips timestamptz) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_unnamed timestamptz;
  v_named timestamptz;
  v_skipped timestamptz;
  v_plain integer;
  v_more boolean := false;
  v_gone bigint;
begin
  select (select y.started_at from {ns}.job_execution y
           where y.key_id between p_key_id and p_key_id and (y.tick is null or y.tick_at is not null)
           order by y.key_id, y.execution_id limit 1),
         (select y.started_at from {ns}.job_execution y
           where y.key_id between p_key_id and p_key_id and y.tick is not null and y.tick_at is null
           order by y.key_id, y.execution_id limit 1),
         (select y.at from {ns}.skip y where y.key_id between p_key_id and p_key_id order by y.key_id, y.at limit 1),
         (select y.plain_until from {ns}.plain_skips y
           where y.key_id between p_key_id and p_key_id order by y.key_id, y.plain_until limit 1)
    into v_unnamed, v_named, v_skipped, v_plain;
  if v_unnamed < p_executions then
    v_more := {ns}.remove_executions_v1(array(
      select o.execution_id
        from (select y.* from {ns}.job_execution y
               where y.key_id between p_key_id and p_key_id and (y.tick is null or y.tick_at is not null)
               order by y.key_id, y.execution_id limit 100 for update skip locked) o
       where o.started_at < p_executions and o.outcome <> 'running'
         and (not o.retrying or not exists (select from {ns}.job_key k where k.key_id = o.key_id and k.execution_id = o.execution_id)))) = 100;
  end if;
  if v_named < p_executions then
    v_more := {ns}.expire_names_v1(p_key_id, p_executions, 100, 1000) = 100 or v_more;
  end if;
  if v_skipped < p_skips then
    delete from {ns}.skip x where x.ctid = any (array(
      select y.ctid from {ns}.skip y where y.key_id between p_key_id and p_key_id and y.at < p_skips
       order by y.key_id, y.at limit 1000 for update skip locked));
    get diagnostics v_gone = row_count;
    v_more := v_gone = 1000 or v_more;
  end if;
  if v_plain < {ns}.plain_expiry(p_skips) then
    delete from {ns}.plain_skips x where x.ctid = any (array(
      select y.ctid from {ns}.plain_skips y
       where y.key_id between p_key_id and p_key_id and y.plain_until < {ns}.plain_expiry(p_skips)
       order by y.key_id, y.plain_until limit 100 for update skip locked));
    get diagnostics v_gone = row_count;
    v_more := v_gone = 100 or v_more;
  end if;
  return v_more;
end $$;

-- A few rows, with an end or a record of one, which an error of retention must not lose: those of the key, and of another
-- key by chance, which may have no ends of its own any more. Where more may be left, the key's next end goes on.
create function {ns}.prune_quietly_v1(p_key_id integer, p_keep_executions double precision, p_keep_skips double precision) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_expired record;
  v_other integer;
  v_more boolean := false;
begin
  begin
    select e.*, (select max(k.key_id) from {ns}.job_key k) as keys into strict v_expired
      from {ns}.expiry_v1(p_keep_executions, p_keep_skips) e;
    select k.key_id into v_other from {ns}.job_key k where k.key_id > floor(random() * v_expired.keys) order by k.key_id limit 1;
    v_more := {ns}.prune_key_v1(p_key_id, v_expired.executions, v_expired.skips);
    if v_other <> p_key_id then
      v_more := {ns}.prune_key_v1(v_other, v_expired.executions, v_expired.skips) or v_more;
    end if;
    perform {ns}.expire_hosts_v1(v_other, v_expired.skips);
    perform {ns}.end_pauses_v1();
    v_more := {ns}.expire_items_v1(v_expired.executions, 2000) >= 2000 or v_more;
  exception when others then
    v_more := false;
    raise log 'oncecron: retention: %', sqlerrm;
  end;
  update {ns}.job_key k set version = {ns}.next_number(k.version), prunes = v_more where k.key_id = p_key_id and k.prunes <> v_more;
end $$;
