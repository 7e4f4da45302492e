-- The items of a tick: their tables, and how they are loaded and counted. draw.sql has how they are drawn and settled. oncecron_each/item_model.py says what the states mean.
--
-- An execution proves with its owner id that it holds its lease, and keeps the key's row FOR KEY SHARE until its step has
-- committed. Who takes the lease away locks that row FOR UPDATE, and so waits for the step.

create domain {ns}.item_position as integer check (value between 0 and 100000000);
create domain {ns}.item_text as text check (octet_length(value) <= 4096);

-- The items of a tick, in the order of the list. Positions above `total` belong to a load that has not ended: nobody sees them.
create table {ns}.item_list (
  list_id           bigint generated always as identity primary key,
  key               {ns}.key_name not null,
  tick              {ns}.tick_name,          -- null: retention is removing it
  total             {ns}.item_position not null default 0,
  loaded_at         timestamptz,             -- when the last load ended; null: none has
  keep              {ns}.seconds not null default 0,      -- how long after that it stays at least
  turn              integer check (turn between 1 and 1000),   -- of its lanes, in positions; null: nothing was drawn
  loading_execution bigint,                  -- the last load: its execution, its last step, and what it has added
  loading_number    integer not null default -1,
  loading_from      {ns}.item_position not null default 0,
  loading_until     {ns}.item_position not null default 0,
  loading_known     bigint not null default 0,
  loading_repeated  bigint not null default 0,
  unique (key, tick)
);

-- It has no foreign key, nor have batches and marks: the check would take half the time of a load. The unique key begins with
-- the id: for a list without statistics, a plan would else read all of the list by it instead of a few positions.
create table {ns}.item (
  list_id  bigint not null,
  position {ns}.item_position not null,
  item_id  bytea not null check (octet_length(item_id) = 16),
  identity {ns}.item_text not null,
  payload  {ns}.item_text,                   -- null: the identity
  primary key (list_id, position),
  unique (item_id, list_id)
);

-- Where a list is drawn from: 16 lanes take turns (item_list.turn), so that slots need not wait for each other's commits.
create table {ns}.item_lane (
  list_id bigint not null references {ns}.item_list on delete cascade,
  lane    smallint not null check (lane between 0 and 15),
  next    integer not null,                  -- the next position
  primary key (list_id, lane)
) with (fillfactor = 50);

-- A slot of a list: the execution that drew last, the number of its last batch, and that batch as long as it is not settled.
-- The part of a batch that was drawn before is in item_mark.
create table {ns}.item_slot (
  list_id      bigint not null references {ns}.item_list on delete cascade,
  key_id       integer not null,
  execution_id bigint not null,
  number       integer not null default 0,
  first        integer,
  size         integer,
  marked       integer not null default 0,   -- how many items of item_mark are part of the batch
  taken_at     timestamptz,
  primary key (list_id, key_id),
  check ((first is null) = (size is null))
) with (fillfactor = 50);

-- The batches that were settled: who drew an item first, and when.
create table {ns}.item_batch (
  list_id      bigint not null,
  first        integer not null,
  size         integer not null,
  execution_id bigint not null,
  taken_at     timestamptz not null,
  settled_at   timestamptz not null,
  primary key (list_id, first)
);

-- The items that are neither queued nor done at the first attempt.
create table {ns}.item_mark (
  list_id      bigint not null,
  position     {ns}.item_position not null,
  state        text not null check (state in ('queued', 'taken', 'done', 'failed', 'lost', 'dead')),
  attempts     {ns}.attempt_number not null,
  not_before   {ns}.wall_time,               -- queued and failed: when it may be drawn
  key_id       integer,                      -- the slot and the execution that drew it last
  execution_id bigint,
  changed_at   timestamptz not null,
  reason       {ns}.short_text,
  primary key (list_id, position),
  check ((state in ('queued', 'failed')) = (not_before is not null))
);
create index item_mark_due on {ns}.item_mark (list_id, not_before) where state in ('queued', 'failed');
create index item_mark_in_doubt on {ns}.item_mark (list_id, execution_id) where state in ('taken', 'lost');

-- Whether the execution has the lease of a slot.
create function {ns}.is_living(p_key_id integer, p_execution_id bigint) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select exists (select from {ns}.job_key k
                  where k.key_id = p_key_id and k.execution_id = p_execution_id and k.expires_at > clock_timestamp())
$$;

create function {ns}.hold_lease_v1(p_execution_id bigint, p_owner uuid, out key_id integer, out key text, out tick text, out host text)
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select k.key_id, k.key, e.tick, e.host
    from {ns}.job_execution e
    join {ns}.job_key k on k.key_id = e.key_id
   where e.execution_id = p_execution_id and k.running = e.execution_id and k.owner = p_owner and k.expires_at > clock_timestamp()
     for key share of k
$$;

-- The first half of a SHA-256, as oncecron_each/item_model.py has it. Without settings of its own it becomes part of a query: 5,000 calls
-- take 8 ms instead of 250 ms.
create function {ns}.item_id(p_key text, p_tick text, p_identity text) returns bytea
language sql stable parallel safe as $$
  select pg_catalog.substr(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.concat(p_key, e'\n', p_tick, e'\n', p_identity), 'UTF8')), 1, 16)
$$;

-- The list of a load, locked, which is made if there is none. A new load first removes what one has left that was cut off, a
-- part at a time: it is not the list's loading execution before that is done. No answer: the lease is lost, or another load
-- has begun.
create function {ns}.begin_load_v1(p_execution_id bigint, p_owner uuid, p_key text, p_tick text, p_number integer)
returns {ns}.item_list
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  l {ns}.item_list;
begin
  if (select h.key_id from {ns}.hold_lease_v1(p_execution_id, p_owner) h) is null then return null; end if;
  select x.* into l from {ns}.item_list x where x.key = p_key and x.tick = p_tick for update;
  if not found and p_number = 0 then
    insert into {ns}.item_list (key, tick) values (p_key, p_tick) on conflict (key, tick) do nothing;
    select x.* into l from {ns}.item_list x where x.key = p_key and x.tick = p_tick for update;
  end if;
  if l.loading_execution = p_execution_id then return l; end if;
  if p_number > 0 then return null; end if;
  delete from {ns}.item i
   where i.list_id = l.list_id and i.position > greatest(l.total, l.loading_until - 50000) and i.position <= l.loading_until;
  l.loading_until := greatest(l.total, l.loading_until - 50000);
  update {ns}.item_list x
     set loading_execution = case when l.loading_until = x.total then p_execution_id end, loading_number = -1,
         loading_from = x.total, loading_until = l.loading_until, loading_known = 0, loading_repeated = 0
   where x.list_id = l.list_id returning x.* into l;
  return l;
end $$;

-- A list that was just loaded has no statistics: without these settings, a plan may read all of it for each step.
--
-- One step of a load: new items come after the last one, in their order. With the last step they become visible. Without
-- payloads the identities are. `again`: the same step has to be called again.
create function {ns}.load_items_v1(
  p_execution_id bigint, p_owner uuid, p_key text, p_tick text, p_number integer, p_identities text[], p_payloads text[],
  p_is_last boolean, p_keep double precision,
  out is_held boolean, out again boolean, out added bigint, out known bigint, out repeated bigint, out total bigint
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  l       {ns}.item_list;
  v_added integer;
  v_known integer := 0;
begin
  l := {ns}.begin_load_v1(p_execution_id, p_owner, p_key, p_tick, p_number);
  is_held := l.list_id is not null;
  again := is_held and l.loading_execution is null;
  if again or not is_held then return; end if;
  if cardinality(p_identities) > 5000 or p_number not in (l.loading_number, l.loading_number + 1) then
    raise exception 'step % of a load does not follow step %', p_number, l.loading_number using errcode = 'invalid_parameter_value';
  end if;
  if p_number > l.loading_number then
    begin  -- mostly all are new, and this takes two thirds of the time of an insert that looks for each first
      insert into {ns}.item (list_id, position, item_id, identity, payload)
        select l.list_id, l.loading_until + u.n, {ns}.item_id(p_key, p_tick, u.identity), u.identity, nullif(u.payload, u.identity)
          from unnest(p_identities, p_payloads) with ordinality u (identity, payload, n);
      v_added := coalesce(cardinality(p_identities), 0);
    exception when unique_violation then
      with given as (
        select g.*, (select i.position from {ns}.item i where i.list_id + 0 = l.list_id and i.item_id = g.item_id) as position
          from (select u.*, {ns}.item_id(p_key, p_tick, u.identity) as item_id
                  from unnest(p_identities, p_payloads) with ordinality u (identity, payload, n)) g),
      new as (
        insert into {ns}.item (list_id, position, item_id, identity, payload)
          select l.list_id, l.loading_until + row_number() over (order by f.n), f.item_id, f.identity, nullif(f.payload, f.identity)
            from (select distinct on (g.item_id) g.* from given g where g.position is null order by g.item_id, g.n) f
        returning position)
      select count(*) filter (where g.position <= l.loading_from), (select count(*) from new) into v_known, v_added from given g;
    end;
    update {ns}.item_list x
       set loading_number = p_number, loading_until = x.loading_until + v_added, loading_known = x.loading_known + v_known,
           loading_repeated = x.loading_repeated + coalesce(cardinality(p_identities), 0) - v_added - v_known,
           total = case when p_is_last then x.loading_until + v_added else x.total end,
           loaded_at = case when p_is_last then clock_timestamp() else x.loaded_at end,
           keep = case when p_is_last then greatest(x.keep, coalesce(p_keep, 0)) else x.keep end
     where x.list_id = l.list_id returning x.* into l;
  end if;
  added := l.loading_until - l.loading_from;
  known := l.loading_known; repeated := l.loading_repeated; total := l.loading_until;
end $$;

-- The lists that were loaded, with how many of their items are in which state. An item that is drawn for the first time has no
-- mark: it is `taken` or `lost` as long as it is in its slot's batch, and `done` after that.
create view {ns}.item_lists as
  select l.list_id, l.key, l.tick, l.total::bigint, l.total - d.drawn + m.queued as queued, s.taken + m.taken as taken,
         d.drawn - s.taken - s.lost - m.marked + m.done as done, m.failed, s.lost + m.lost as lost, m.dead, l.loaded_at
    from {ns}.item_list l
    cross join lateral (
      select coalesce(sum((x.next - 1) / (16 * l.turn) * l.turn + (x.next - 1) % l.turn), 0) as drawn from {ns}.item_lane x where x.list_id = l.list_id) d
    cross join lateral (
      select coalesce(sum(x.size) filter (where k.key_id is not null), 0) as taken, coalesce(sum(x.size) filter (where k.key_id is null), 0) as lost
        from {ns}.item_slot x
        left join {ns}.job_key k on k.key_id = x.key_id and k.execution_id = x.execution_id and k.expires_at > pg_catalog.clock_timestamp()
       where x.list_id = l.list_id and x.size is not null) s
    cross join lateral (
      select count(*) as marked, count(*) filter (where x.state = 'queued') as queued, count(*) filter (where x.state = 'done') as done,
             count(*) filter (where x.state = 'taken' and k.key_id is not null) as taken, count(*) filter (where x.state = 'failed') as failed,
             count(*) filter (where x.state = 'lost' or x.state = 'taken' and k.key_id is null) as lost,
             count(*) filter (where x.state = 'dead') as dead
        from {ns}.item_mark x
        left join {ns}.job_key k on k.key_id = x.key_id and k.execution_id = x.execution_id and k.expires_at > pg_catalog.clock_timestamp()
       where x.list_id = l.list_id) m
   where l.loaded_at is not null and l.tick is not null;

-- The items: those with marks, those in a batch that is not settled, those of settled batches, and those that no slot has drawn.
create view {ns}.items as
  select l.key, l.tick, i.position::integer, i.identity::text as item, encode(i.item_id, 'hex') as item_id,
         case when m.state = 'taken' and k.key_id is null then 'lost' else m.state end as state, m.attempts::integer, m.execution_id,
         m.changed_at as since, case when m.state = 'failed' then m.not_before end as not_before, m.reason::text,
         coalesce(i.payload, i.identity)::text as payload
    from {ns}.item_list l
    join {ns}.item_mark m using (list_id)
    join {ns}.item i on i.list_id = l.list_id and i.position = m.position
    left join {ns}.job_key k on k.key_id = m.key_id and k.execution_id = m.execution_id and k.expires_at > pg_catalog.clock_timestamp()
  union all
  select l.key, l.tick, i.position, i.identity, encode(i.item_id, 'hex'), case when k.key_id is null then 'lost' else 'taken' end, 1,
         s.execution_id, s.taken_at, null, null, coalesce(i.payload, i.identity)
    from {ns}.item_list l
    join {ns}.item_slot s using (list_id)
    join {ns}.item i on i.list_id = l.list_id and i.position between s.first and s.first + s.size - 1
    left join {ns}.job_key k on k.key_id = s.key_id and k.execution_id = s.execution_id and k.expires_at > pg_catalog.clock_timestamp()
  union all
  select l.key, l.tick, i.position, i.identity, encode(i.item_id, 'hex'), 'done', 1, b.execution_id, b.settled_at, null, null,
         coalesce(i.payload, i.identity)
    from {ns}.item_list l
    join {ns}.item_batch b using (list_id)
    join {ns}.item i on i.list_id = l.list_id and i.position between b.first and b.first + b.size - 1
   where not exists (select from {ns}.item_mark m where m.list_id = i.list_id and m.position = i.position)
  union all
  select l.key, l.tick, i.position, i.identity, encode(i.item_id, 'hex'), 'queued', 0, null, null, null, null,
         coalesce(i.payload, i.identity)
    from {ns}.item_list l
    join {ns}.item i on i.list_id = l.list_id and i.position <= l.total
    left join {ns}.item_lane n on n.list_id = l.list_id and n.lane = (i.position - 1) / l.turn % 16
   where n.next is null or i.position >= n.next;

create function {ns}.progress_v1(
  p_key text, p_tick text,
  out total bigint, out queued bigint, out taken bigint, out done bigint, out failed bigint, out lost bigint, out dead bigint
)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select x.total, x.queued, x.taken, x.done, x.failed, x.lost, x.dead from {ns}.item_lists x where x.key = p_key and x.tick = p_tick
$$;

-- For operators: queue items again that are in doubt, given up, or wait for their retry; returns how many.
create function {ns}.mend_items_v1(p_key text, p_tick text, p_states text[], p_identities text[], p_state text, p_reason text)
returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $$
declare
  v_list bigint := (select l.list_id from {ns}.item_list l where l.key = p_key and l.tick = p_tick);
  v_mended bigint;
begin
  if p_state not in ('queued', 'done') then
    raise exception 'no item can be made %', p_state using errcode = 'invalid_parameter_value';
  end if;
  if 'lost' = any (p_states) then
    perform {ns}.doubt_v1(s, 'lost')
       from (select x.* from {ns}.item_slot x
              where x.list_id = v_list and x.first is not null and not {ns}.is_living(x.key_id, x.execution_id)
                for update skip locked) s;
  end if;
  update {ns}.item_mark m
     set state = p_state, not_before = case when p_state = 'queued' then clock_timestamp() end, changed_at = clock_timestamp(),
         reason = p_reason
    from {ns}.item i
   where m.list_id = v_list and i.list_id = m.list_id and i.position = m.position
     and (p_identities is null
          or i.item_id = any (array(select {ns}.item_id(p_key, p_tick, u.identity) from unnest(p_identities) u (identity))))
     and case when m.state = 'taken' and not {ns}.is_living(m.key_id, m.execution_id) then 'lost'
              when m.state in ('lost', 'dead', 'failed') then m.state end = any (p_states);
  get diagnostics v_mended = row_count;
  return v_mended;
end $$;

-- Remove at most p_most rows of lists that have expired: no execution of their tick is in the log, but old ones whose host has
-- died, and the last load is older than this, and than what the list asked for. Likewise of lists whose first load was cut off.
-- A list without a tick is known to nobody any more.
create or replace function {ns}.expire_items_v1(p_before timestamptz, p_most bigint) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_list bigint;
  v_gone bigint;
  v_all  bigint := 0;
begin
  if not exists (select from {ns}.item_list) then return 0; end if;
  update {ns}.item_list l
     set tick = null, loaded_at = null
   where l.list_id in (
     select x.list_id from {ns}.item_list x
      where x.loaded_at < p_before and x.loaded_at + make_interval(secs => x.keep) < now()
            and not exists (select from {ns}.job_key k join {ns}.job_execution e using (key_id) where k.key = x.key and e.tick = x.tick
                               and (e.outcome <> 'running' or e.started_at >= p_before or k.expires_at > clock_timestamp()))
         or x.loaded_at is null and x.tick is not null
            and not exists (select from {ns}.job_key k where k.execution_id = x.loading_execution and k.expires_at > clock_timestamp())
      limit 10 for update skip locked);
  for v_list in select l.list_id from {ns}.item_list l where l.tick is null limit 10 for update skip locked loop
    delete from {ns}.item_mark x where x.ctid = any (array(select y.ctid from {ns}.item_mark y where y.list_id = v_list limit p_most));
    get diagnostics v_gone = row_count; v_all := v_all + v_gone;
    delete from {ns}.item_batch x where x.ctid = any (array(select y.ctid from {ns}.item_batch y where y.list_id = v_list limit p_most));
    get diagnostics v_gone = row_count; v_all := v_all + v_gone;
    delete from {ns}.item x where x.ctid = any (array(select y.ctid from {ns}.item y where y.list_id = v_list limit greatest(0, p_most - v_all)));
    get diagnostics v_gone = row_count; v_all := v_all + v_gone;
    exit when v_all >= p_most;
    delete from {ns}.item_list x where x.list_id = v_list;
    v_all := v_all + 1;
  end loop;
  return v_all;
end $$;
