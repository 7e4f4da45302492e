-- How a batch of items is drawn, and how the last one of a slot is settled.

-- Open the slot for an execution that draws for the first time; what the slot's last one has taken and not settled is in doubt.
-- A slot has a row of its own, so that slots do not wait for each other. Null: the lease is lost; false: there is no list.
--
-- The first draw of a list makes its lanes. A turn is eight of its batches, but at most 1,000 positions: a batch ends with the turn.
create function {ns}.open_slot_v1(p_execution_id bigint, p_owner uuid, p_batch integer) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_key_id  integer;
  v_list_id bigint;
  s         {ns}.item_slot;
begin
  select h.key_id, l.list_id into v_key_id, v_list_id
    from {ns}.hold_lease_v1(p_execution_id, p_owner) h
    left join {ns}.item_list l on l.key = h.key and l.tick = h.tick and l.loaded_at is not null
   where h.key_id is not null;
  if not found then return null; end if;
  if v_list_id is null then return false; end if;
  select x.* into s from {ns}.item_slot x where x.list_id = v_list_id and x.key_id = v_key_id for update;
  if s.first is not null then perform {ns}.doubt_v1(s, 'lost'); end if;
  insert into {ns}.item_slot as x (list_id, key_id, execution_id) values (v_list_id, v_key_id, p_execution_id)
    on conflict (list_id, key_id) do update
      set execution_id = excluded.execution_id, number = 0, first = null, size = null, taken_at = null, marked = 0;
  if p_batch > 0 then
    with first as (
      update {ns}.item_list l set turn = p_batch * least(8, 1000 / p_batch)
       where l.list_id = v_list_id and l.turn is null returning l.turn)
    insert into {ns}.item_lane (list_id, lane, next) select v_list_id, n, 1 + f.turn * n from first f, generate_series(0, 15) n;
  end if;
  return true;
end $$;

-- The batch of a slot whose execution is dead becomes items of their own, `lost` or `queued`. The caller has locked the row.
create function {ns}.doubt_v1(s {ns}.item_slot, p_state text) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into {ns}.item_mark (list_id, position, state, attempts, not_before, key_id, execution_id, changed_at)
    select s.list_id, n, p_state, 1, case when p_state = 'queued' then clock_timestamp() end, s.key_id, s.execution_id, s.taken_at
      from generate_series(s.first, s.first + s.size - 1) n
    on conflict (list_id, position) do nothing;
  insert into {ns}.item_batch (list_id, first, size, execution_id, taken_at, settled_at)
    values (s.list_id, s.first, s.size, s.execution_id, s.taken_at, clock_timestamp())
    on conflict (list_id, first) do nothing;
  update {ns}.item_slot x set first = null, size = null where x.list_id = s.list_id and x.key_id = s.key_id;
$$;

-- How a batch has ended: the results that are named, and all marked items that are not named done.
create function {ns}.settle_marks_v1(s {ns}.item_slot, p_results json) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  insert into {ns}.item_mark as m (list_id, position, state, attempts, not_before, key_id, execution_id, changed_at, reason)
    select s.list_id, r.position, r.state, 1, case when r.state = 'failed' then v_now + make_interval(secs => coalesce(r.delay, 0)::{ns}.seconds) end,
           s.key_id, s.execution_id, v_now, r.reason
      from json_to_recordset(p_results) r (position integer, state text, delay double precision, reason text)
     where r.state in ('done', 'failed', 'lost', 'dead')
       and (r.position >= s.first and r.position < s.first + s.size
            or exists (select from {ns}.item_mark x where x.list_id = s.list_id and x.position = r.position
                          and x.state = 'taken' and x.execution_id = s.execution_id))
    on conflict (list_id, position) do update
      set state = excluded.state, not_before = excluded.not_before, changed_at = v_now, reason = excluded.reason;
  update {ns}.item_mark m
     set state = 'done', changed_at = v_now
   where m.list_id = s.list_id and m.execution_id = s.execution_id and m.state = 'taken';
end $$;

-- Queue the items in doubt again that were drawn fewer times than this. A slot that is just drawing is passed over.
create function {ns}.redraw_v1(p_list_id bigint, p_below integer) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform {ns}.doubt_v1(s, 'queued')
     from (select x.* from {ns}.item_slot x
            where x.list_id = p_list_id and x.first is not null and p_below > 1 and not {ns}.is_living(x.key_id, x.execution_id)
              for update skip locked) s;
  update {ns}.item_mark m
     set state = 'queued', not_before = clock_timestamp()
   where (m.list_id, m.position) in (
     select x.list_id, x.position from {ns}.item_mark x
      where x.list_id = p_list_id and x.state in ('taken', 'lost') and x.attempts < p_below
        and (x.state = 'lost' or not {ns}.is_living(x.key_id, x.execution_id))
        for update skip locked);
end $$;

-- Take items whose retry is due; returns how many.
create function {ns}.take_due_v1(p_list_id bigint, p_key_id integer, p_execution_id bigint, p_wanted integer) returns integer
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_taken integer;
begin
  update {ns}.item_mark m
     set state = 'taken', not_before = null, attempts = m.attempts + 1, key_id = p_key_id, execution_id = p_execution_id,
         changed_at = v_now
   where (m.list_id, m.position) in (
     select x.list_id, x.position from {ns}.item_mark x
      where x.list_id = p_list_id and x.state in ('queued', 'failed') and x.not_before <= v_now
      order by x.not_before limit p_wanted for update skip locked);
  get diagnostics v_taken = row_count;
  return v_taken;
end $$;

-- Settle the last batch of a slot, and take the next one: due items, and then the next ones of the list in a lane that no other
-- draw has locked, or else in the first one that becomes free. A number that the slot has had returns that batch, and a number out
-- of turn nothing: the store has lost a batch, or the call comes late. Not held: no answer.
--
-- `items` are drawn for the first time, `marked` were drawn before, as JSON: position, identity, payload if it differs, and of
-- a marked one how often it has been drawn. What a draw costs is the start of each statement, so there are few;
-- as a part of the first join, what stops the slot and what is due would cost the server another 6 % of a draw.
-- Where a plan has to read a whole table all the same, as that of pauses, it passes for so dear that JIT would compile it at
-- each draw: for 0.3 s.
create function {ns}.draw_v1(
  p_execution_id bigint, p_owner uuid, p_number integer, p_results json, p_wanted integer, p_redraw_below integer,
  out is_held boolean, out items text, out marked text, out wait double precision, out others bigint, out stopped text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now      timestamptz := clock_timestamp();
  v_results  boolean := json_array_length(p_results) > 0;
  v_wanted   integer := least(p_wanted, 1000);
  v_list_id  bigint; v_total  integer; v_turn integer; v_key_id integer; v_number integer; v_first integer; v_size integer;
  v_taken_at timestamptz; v_marked integer; v_key text; v_host text;
begin
  loop
    select l.list_id, l.total, l.turn, s.key_id, s.number, s.first, s.size, s.taken_at, s.marked, k.key, e.host
      into v_list_id, v_total, v_turn, v_key_id, v_number, v_first, v_size, v_taken_at, v_marked, v_key, v_host
      from {ns}.job_execution e
      join {ns}.job_key k on k.key_id = e.key_id
      join {ns}.item_list l on l.key = k.key and l.tick = e.tick
      join {ns}.item_slot s on s.list_id = l.list_id and s.key_id = k.key_id and s.execution_id = e.execution_id
     where e.execution_id = p_execution_id and k.running = e.execution_id and k.owner = p_owner and k.expires_at > clock_timestamp()
       and l.loaded_at is not null
       for key share of k for update of s;
    exit when found and (v_turn is not null or v_wanted <= 0);
    is_held := {ns}.open_slot_v1(p_execution_id, p_owner, v_wanted);
    if is_held is distinct from true then is_held := is_held is not null; return; end if;
  end loop;
  is_held := p_number in (v_number, v_number + 1);
  if not is_held then return; end if;
  if p_number > v_number then
    if v_marked > 0 or v_results then
      perform {ns}.settle_marks_v1(s, p_results) from {ns}.item_slot s where s.list_id = v_list_id and s.key_id = v_key_id;
    end if;
    stopped := (select case x.kind when 'key' then 'paused' when 'host' then 'drained' end from {ns}.stop_v1(v_key, v_host) x);
    if stopped is not null then v_wanted := 0; end if;
    v_marked := 0;
    if v_wanted > 0 and p_redraw_below > 0 then perform {ns}.redraw_v1(v_list_id, p_redraw_below); end if;
    if v_wanted > 0 and (v_results or p_redraw_below > 0 or exists (
      select from {ns}.item_mark m where m.list_id = v_list_id and m.state in ('queued', 'failed') and m.not_before <= v_now))
    then
      v_marked := {ns}.take_due_v1(v_list_id, v_key_id, p_execution_id, v_wanted);
    end if;
    loop
      with settled as (
        insert into {ns}.item_batch (list_id, first, size, execution_id, taken_at, settled_at)
          select v_list_id, v_first, v_size, p_execution_id, v_taken_at, clock_timestamp() where v_first is not null),
      free as (
        select x.lane, x.next, least(v_wanted - v_marked, v_total - x.next + 1, v_turn - (x.next - 1) % v_turn) as size from {ns}.item_lane x
         where x.list_id = v_list_id and x.next <= v_total and v_wanted > v_marked
         order by x.next limit 1 for update skip locked),
      taken as (
        update {ns}.item_lane x
           set next = f.next + f.size + case when (f.next + f.size - 1) % v_turn = 0 then 15 * v_turn else 0 end
          from free f where x.list_id = v_list_id and x.lane = f.lane returning f.next, f.size)
      update {ns}.item_slot s
         set number = case when v_marked > 0 or t.next is not null then p_number else v_number end, first = t.next, size = t.size,
             marked = v_marked, taken_at = clock_timestamp()
        from (select) o left join taken t on true where s.list_id = v_list_id and s.key_id = v_key_id
      returning s.first, s.size into v_first, v_size;
      exit when v_first is not null or v_wanted <= v_marked;
      perform from {ns}.item_lane x where x.list_id = v_list_id and x.next <= v_total limit 1 for update;
      exit when not found;
    end loop;
  end if;
  if p_wanted <= 0 or stopped is not null then return; end if;
  items := (
    select json_agg(json_build_array(i.position, i.identity, i.payload) order by i.position) from {ns}.item i
     where i.list_id = v_list_id and i.position >= v_first and i.position < v_first + v_size);
  if v_marked > 0 then
    marked := (
      select json_agg(json_build_array(m.position, i.identity, i.payload, m.attempts)) from {ns}.item_mark m
        join {ns}.item i on i.list_id = m.list_id and i.position = m.position
       where m.list_id = v_list_id and m.execution_id = p_execution_id and m.state = 'taken');
  elsif items is null then
    select greatest({ns}.epoch(m.not_before) - {ns}.epoch(clock_timestamp()), 0.001) into wait from {ns}.item_mark m
      where m.list_id = v_list_id and m.state in ('queued', 'failed') order by m.not_before limit 1;
    others := {ns}.taken_by_others_v1(v_list_id, p_execution_id);
  end if;
end $$;

-- How many items other living executions have taken: one of them may have to be drawn again.
create function {ns}.taken_by_others_v1(p_list_id bigint, p_execution_id bigint) returns bigint
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select coalesce((select sum(s.size) from {ns}.item_slot s
                    where s.list_id = p_list_id and s.execution_id <> p_execution_id and s.size > 0
                      and {ns}.is_living(s.key_id, s.execution_id)), 0)
       + (select count(*) from {ns}.item_mark m
           where m.list_id = p_list_id and m.state = 'taken' and m.execution_id <> p_execution_id
             and {ns}.is_living(m.key_id, m.execution_id))
$$;
