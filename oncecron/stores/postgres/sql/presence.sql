-- Which hosts fire a key: how what core/presence.py makes of it is written. p_before is what was looked at. If another firing of the
-- host has changed it since, see_again_v1() writes nothing and has no answer, and see_first_v1(), for a host that was not known,
-- violates the primary key. p_plain_from and p_plain: a plain skip (core/decision.py), which does not wait for the disk. For one
-- a firing calls them by themselves.

-- Put plain skips away that a host's row has no more room for, or is removed with. True.
create function {ns}.put_away_v1(p_key_id integer, p_host text, p_from integer, p_plain integer[]) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into {ns}.plain_skips (key_id, host, plain_from, plain_until, plain)
    select p_key_id, p_host, p_from, p_from + (max(x) >> 20), p_plain from unnest(p_plain) x having count(*) > 0;
  select true
$$;

create function {ns}.see_first_v1(p_key_id integer, p_host text, p_after text, p_plain_from integer, p_plain integer) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  insert into {ns}.key_host (key_id, host, seen_at, presence, plain_from, plain)
    select k.key_id, p_host, clock_timestamp(), p_after, p_plain_from, case when p_plain is null then '{}' else array[p_plain] end
      from {ns}.job_key k
     where k.key_id = p_key_id and (p_plain is null or set_config('synchronous_commit', 'off', true) is not null)
  returning true
$$;

create function {ns}.see_again_v1(
  p_key_id integer, p_host text, p_before text, p_after text, p_plain_from integer, p_plain integer
) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  update {ns}.key_host h
     set seen_at = clock_timestamp(), presence = p_after, plain_from = coalesce(p_plain_from, h.plain_from),
         plain = case when p_plain is null then h.plain
                      when h.plain_from = p_plain_from and cardinality(h.plain) < 240 then array_append(h.plain, p_plain)
                      when {ns}.put_away_v1(h.key_id, h.host, h.plain_from, h.plain) then array[p_plain] end
   where h.key_id = p_key_id and h.host = p_host and h.presence = p_before
     and (p_plain is null or set_config('synchronous_commit', 'off', true) is not null)
  returning true
$$;
