-- Which hosts fire a key.

-- The counts of 24 hours, the newest last, p_hours later, with p_more in the newest. Other arrays count nothing.
create function {ns}.counted(p_counts integer[], p_hours integer, p_more integer) returns integer[]
language sql immutable parallel safe as $$
  select case when cardinality(p_counts) = 24
              then (p_counts || array_fill(0, array[least(greatest(p_hours, 0), 24)]))
                     [least(greatest(p_hours, 0), 24) + 1:least(greatest(p_hours, 0), 24) + 23]
              else array_fill(0, array[23]) end
         || (case when p_hours <= 0 then coalesce(p_counts[24], 0) else 0 end + p_more)
$$;

-- What a firing that reaches the store tells about its host, when it has won its tick or has skipped it. One by hand
-- (p_again) fires no tick, and tells nothing about the crontab. p_oncecron: its version; null: nothing was told. The
-- caller writes tick and host elsewhere too, where they are checked; what else a role makes up is cut. True.
create function {ns}.see_v1(
  p_key_id integer, p_tick text, p_host text, p_oncecron text, p_host_now double precision, p_again boolean,
  p_schedule text, p_zone text, p_command text, p_won integer, p_skipped integer
) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  with seen as (
    insert into {ns}.key_host as h
        (key_id, host, seen_at, version, clock_ahead, ticks, ticks_at, schedule, zone, command, hour, wins, skips)
      select p_key_id, p_host, n.at, left(p_oncecron, 100), greatest(least(p_host_now - date_part('epoch', n.at), 1e9), -1e9),
             case when p_again or p_tick is null then '{}' else array[p_tick] end,
             case when p_again or p_tick is null then '{}' else array[date_part('epoch', n.at)] end,
             case when not p_again then left(p_schedule, 1000) end, case when not p_again then left(p_zone, 1000) end,
             case when not p_again then left(p_command, 1000) end, floor(date_part('epoch', n.at) / 3600),
             array_fill(0, array[23]) || p_won, array_fill(0, array[23]) || p_skipped
        from (select clock_timestamp() as at) n where p_oncecron is not null
      on conflict (key_id, host) do update
        set seen_at = excluded.seen_at, version = excluded.version, clock_ahead = excluded.clock_ahead,
            ticks = case when excluded.ticks[1] <> all (h.ticks) then (excluded.ticks || h.ticks)[:3] else h.ticks end,
            ticks_at = case when excluded.ticks[1] <> all (h.ticks) then (excluded.ticks_at || h.ticks_at)[:3] else h.ticks_at end,
            schedule = case when p_again then h.schedule else excluded.schedule end,
            zone = case when p_again then h.zone else excluded.zone end,
            command = case when p_again then h.command else excluded.command end,
            hour = excluded.hour, wins = {ns}.counted(h.wins, excluded.hour - greatest(h.hour, 0), p_won),
            skips = {ns}.counted(h.skips, excluded.hour - greatest(h.hour, 0), p_skipped))
  select true
$$;
