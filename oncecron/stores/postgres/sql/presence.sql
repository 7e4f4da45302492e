-- Which hosts fire a key.

-- The counts of 24 hours, the newest last, p_hours later, with p_more in the newest. Other arrays count nothing. A function
-- with a setting is not inlined: a new session reads it only when it is called.
create function {ns}.counted(p_counts integer[], p_hours integer, p_more integer) returns integer[]
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select case when cardinality(p_counts) = 24
              then (p_counts || array_fill(0, array[least(greatest(p_hours, 0), 24)]))
                     [least(greatest(p_hours, 0), 24) + 1:least(greatest(p_hours, 0), 24) + 23]
              else array_fill(0, array[23]) end
         || (case when p_hours <= 0 then coalesce(p_counts[24], 0) else 0 end + p_more)
$$;

-- Put plain skips away that a host's row has no more room for, or is removed with. True.
create function {ns}.put_away_v1(p_key_id integer, p_host text, p_from integer, p_plain integer[]) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into {ns}.plain_skips (key_id, host, plain_from, plain_until, plain)
    select p_key_id, p_host, p_from, p_from + (max(x) >> 20), p_plain from unnest(p_plain) x having count(*) > 0;
  select true
$$;

-- Whether one more plain skip has room in the row of its host: a tick of the next 34 hours, and at most 120; or, within limits, a
-- tick that the row has already, so that there is one row for each tick.
create function {ns}.has_room(p_from integer, p_plain integer[], p_minute integer) returns boolean
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select p_minute - p_from between 0 and 2047
         and (cardinality(p_plain) < 120 or cardinality(p_plain) < 240 and p_minute - p_from <= p_plain[cardinality(p_plain)] >> 20)
$$;

-- The last two ticks that two machines fired under the name of one host.
create function {ns}.fired_twice(p_twice text[], p_ticks text[], p_tick text, p_before text, p_machine text) returns text[]
language sql immutable parallel safe as $$
  select case when p_before <> p_machine and p_tick = any (p_ticks) and p_tick <> all (p_twice) then array_prepend(p_tick, p_twice[:1])
              else p_twice end
$$;

-- What see_v1() does for a host that has told the same of its crontab before, if there is room for a plain skip: half of
-- what that costs a new session. No answer: nothing was done.
create function {ns}.see_again_v1(
  p_key_id integer, p_tick text, p_host text, p_oncecron text, p_host_now double precision,
  p_schedule text, p_zone text, p_utc_offset integer, p_command text, p_won integer, p_skipped integer, p_minute integer, p_code integer, p_machine text,
  p_hour integer
) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  update {ns}.key_host h
     set seen_at = clock_timestamp(),
         clock_ahead = greatest(least(p_host_now - date_part('epoch'::text, clock_timestamp()), float8 '1e9'), float8 '-1e9'), hour = p_hour,
         ticks = case when p_tick is null or p_tick = any (h.ticks) then h.ticks else array_prepend(p_tick, h.ticks[:2]) end,
         ticks_at = case when p_tick is null or p_tick = any (h.ticks) then h.ticks_at
                         else array_prepend(date_part('epoch'::text, clock_timestamp()), h.ticks_at[:2]) end,
         wins = case when h.hour = p_hour then array_append(h.wins[:23], h.wins[24] + p_won)
                     else {ns}.counted(h.wins, p_hour - greatest(h.hour, 0), p_won) end,
         skips = case when h.hour = p_hour then array_append(h.skips[:23], h.skips[24] + p_skipped)
                      else {ns}.counted(h.skips, p_hour - greatest(h.hour, 0), p_skipped) end,
         plain = case when p_minute is null then h.plain else array_append(h.plain, (p_minute - h.plain_from) << 20 | p_code) end,
         utc_offset = p_utc_offset, machine = left(p_machine, 40), twice = {ns}.fired_twice(h.twice, h.ticks, p_tick, h.machine, p_machine)
   where h.key_id = p_key_id and h.host = p_host and h.version = p_oncecron and h.schedule is not distinct from p_schedule
     and h.zone is not distinct from p_zone and h.command is not distinct from p_command
     and case when p_minute is null then true else {ns}.has_room(h.plain_from, h.plain, p_minute) end
  returning true
$$;

-- The same for any host. What a role makes up is cut.
create function {ns}.see_anew_v1(
  p_key_id integer, p_tick text, p_host text, p_oncecron text, p_host_now double precision, p_again boolean,
  p_schedule text, p_zone text, p_utc_offset integer, p_command text, p_won integer, p_skipped integer, p_minute integer, p_code integer, p_machine text
) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into {ns}.key_host as h
      (key_id, host, seen_at, version, clock_ahead, ticks, ticks_at, schedule, zone, command, hour, wins, skips, plain_from, plain, machine,
       utc_offset)
    select p_key_id, p_host, n.at, left(p_oncecron, 100), greatest(least(p_host_now - date_part('epoch'::text, n.at), float8 '1e9'), float8 '-1e9'),
           case when p_again or p_tick is null then '{}' else array[p_tick] end,
           case when p_again or p_tick is null then '{}' else array[date_part('epoch'::text, n.at)] end,
           case when not p_again then left(p_schedule, 1000) end, case when not p_again then left(p_zone, 1000) end,
           case when not p_again then left(p_command, 1000) end, floor(date_part('epoch'::text, n.at) / float8 '3600'),
           array_fill(0, array[23]) || p_won, array_fill(0, array[23]) || p_skipped,
           p_minute, case when p_minute is null then '{}' else array[p_code] end, left(p_machine, 40),
           case when not p_again then p_utc_offset end
      from (select clock_timestamp() as at) n
    on conflict (key_id, host) do update
      set seen_at = excluded.seen_at, version = excluded.version, clock_ahead = excluded.clock_ahead,
          ticks = case when excluded.ticks[1] <> all (h.ticks) then (excluded.ticks || h.ticks)[:3] else h.ticks end,
          ticks_at = case when excluded.ticks[1] <> all (h.ticks) then (excluded.ticks_at || h.ticks_at)[:3] else h.ticks_at end,
          schedule = case when p_again then h.schedule else excluded.schedule end,
          zone = case when p_again then h.zone else excluded.zone end,
          command = case when p_again then h.command else excluded.command end,
          utc_offset = case when p_again then h.utc_offset else excluded.utc_offset end,
          hour = excluded.hour, wins = {ns}.counted(h.wins, excluded.hour - greatest(h.hour, 0), p_won),
          skips = {ns}.counted(h.skips, excluded.hour - greatest(h.hour, 0), p_skipped),
          plain_from = case when p_minute is null or {ns}.has_room(h.plain_from, h.plain, p_minute) then h.plain_from else p_minute end,
          plain = case when p_minute is null then h.plain
                       when {ns}.has_room(h.plain_from, h.plain, p_minute) then h.plain || ((p_minute - h.plain_from) << 20 | p_code)
                       when {ns}.put_away_v1(h.key_id, h.host, h.plain_from, h.plain) then array[p_code] end,
          machine = excluded.machine, twice = {ns}.fired_twice(h.twice, h.ticks, excluded.ticks[1], h.machine, excluded.machine)
  returning true
$$;

-- What a firing that reaches the store tells about its host, when it has won its tick or has skipped it. One by hand
-- (p_again) fires no tick, and tells nothing about the crontab. p_oncecron: its version; null: nothing was told. The
-- caller checks tick and host, or writes them where they are checked. p_minute and p_code: a plain skip. True.
create function {ns}.see_v1(
  p_key_id integer, p_tick text, p_host text, p_oncecron text, p_host_now double precision, p_again boolean,
  p_schedule text, p_zone text, p_utc_offset integer, p_command text, p_won integer, p_skipped integer, p_minute integer, p_code integer, p_machine text
) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select case when p_oncecron is null then true else coalesce(
    case when not p_again then {ns}.see_again_v1(p_key_id, p_tick, p_host, p_oncecron, p_host_now, p_schedule, p_zone, p_utc_offset,
      p_command, p_won, p_skipped, p_minute, p_code, p_machine, floor(date_part('epoch'::text, clock_timestamp()) / float8 '3600')::integer) end,
    {ns}.see_anew_v1(p_key_id, p_tick, p_host, p_oncecron, p_host_now, p_again, p_schedule, p_zone, p_utc_offset,
      p_command, p_won, p_skipped, p_minute, p_code, p_machine)) end
$$;

-- A plain skip (core/decision.py): one update of its host's row, which the firing makes anyway. Another value than a claim
-- sends, or a key that is not there, writes nothing, and there is no answer. It does not wait for the disk.
create function {ns}.skip_plainly_v1(
  p_key_id integer, p_host text, p_minute integer, p_code integer, p_oncecron text, p_host_now double precision,
  p_schedule text, p_zone text, p_utc_offset integer, p_command text, p_machine text
) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select {ns}.see_v1(k.key_id, to_char(to_timestamp(p_minute::float8 * float8 '60') at time zone 'UTC'::text, 'YYYY-MM-DD"T"HH24:MI"Z"'::text),
                     p_host, p_oncecron, p_host_now, false, p_schedule, p_zone, p_utc_offset, p_command, 0, 1, p_minute, p_code, p_machine)
    from {ns}.job_key k
   where k.key_id = p_key_id and octet_length(p_host) <= 1020 and p_minute >= 0 and p_code between 0 and 1048575
     and set_config('synchronous_commit', 'off', true) is not null
$$;
