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
       set version = {ns}.next_version(k.version), newest_id = null, newest_owner = null, tick_known = false
      from keys x where k.key_id = x.key_id),
  gone as (
    delete from {ns}.job_execution e using old o
     where e.execution_id = o.execution_id and (o.is_newest is not true or o.key_id in (select x.key_id from keys x))
    returning 1)
  select count(*) from gone
$$;

-- Remove at most p_most expired executions and as many skips, and rows of expired lists of items: those older than the caller's ages and than the owner's,
-- which meta has. Only the log keeps named ticks unique, so the newest p_names of a key are kept however old they are;
-- only the given key's names are examined. An execution that has ended has a lease only if a retry is to follow. It uses
-- now(), because clock_timestamp() is volatile and uses no index, and plans for the given ages. Otherwise every finish
-- reads the whole log (500 ms at a million rows, instead of 1 ms).
create function {ns}.prune_v1(
  p_key_id integer, p_keep_executions interval, p_keep_skips interval, p_most bigint, p_names integer,
  out executions bigint, out skips bigint, out items bigint
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $$
declare
  v_ids bigint[];
  v_name bigint;
  v_executions timestamptz;
  v_skips timestamptz;
begin
  select now() - greatest(p_keep_executions, make_interval(secs => m.least_executions)),
         now() - greatest(p_keep_skips, make_interval(secs => m.least_skips)) into strict v_executions, v_skips from {ns}.meta m;
  v_ids := array(
    select y.execution_id from {ns}.job_execution y
     where y.started_at < v_executions and y.outcome <> 'running' and (y.tick is null or y.tick_at is not null)
       and (not y.retrying or not exists (select from {ns}.job_key k where k.key_id = y.key_id and k.execution_id = y.execution_id))
     limit p_most for update skip locked);
  executions := case when v_ids = '{}' then 0 else {ns}.remove_executions_v1(v_ids) end;
  with gone as (
    delete from {ns}.skip x where x.ctid in (
      select y.ctid from {ns}.skip y where y.at < v_skips limit p_most for update skip locked)
    returning 1)
  select count(*) into skips from gone;
  delete from {ns}.pause x where (x.kind, x.name) in (
    select y.kind, y.name from {ns}.pause y where y.until <= now() for update skip locked);
  delete from {ns}.key_host x where (x.key_id, x.host) in (
    select y.key_id, y.host from {ns}.key_host y
     where y.key_id = p_key_id and y.seen_at < now() - make_interval(secs => {host_forgotten_after}) for update skip locked);
  select y.execution_id into v_name from {ns}.job_execution y
    where y.key_id = p_key_id and y.tick is not null and y.tick_at is null order by y.execution_id desc offset p_names limit 1;
  if v_name is not null then
    v_ids := array(
      select y.execution_id from {ns}.job_execution y
       where y.key_id = p_key_id and y.tick is not null and y.tick_at is null and y.execution_id <= v_name
         and y.started_at < v_executions and y.outcome <> 'running'
         and (not y.retrying or not exists (select from {ns}.job_key k where k.key_id = y.key_id and k.execution_id = y.execution_id))
       order by y.execution_id limit p_most for update skip locked);
    if v_ids <> '{}' then executions := executions + {ns}.remove_executions_v1(v_ids); end if;
  end if;
  items := {ns}.expire_items_v1(v_executions, 20 * p_most);     -- the rows are small
end $$;

-- A few rows, with an end or a record of one, which an error of retention must not lose.
create function {ns}.prune_quietly_v1(p_key_id integer, p_keep_executions double precision, p_keep_skips double precision) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform {ns}.prune_v1(p_key_id, make_interval(secs => p_keep_executions), make_interval(secs => p_keep_skips), 100, 1000);
exception when others then
  raise log 'oncecron: retention: %', sqlerrm;
end $$;
