-- What a claim looks at, by the names of core/facts.py. No function locks or writes anything. A flag is true or null.

-- Here and in all that every firing calls, operators and functions get exactly the types that they are declared with: a
-- column of a domain and a literal are cast, and 1e6 is float8 '1e6'. For other types, a new session looks for casts to the
-- types of all operators of that name: in some forty rows of pg_cast for one `=`. So it does for greatest(), least() and
-- ORDER BY, once for each type: they are used with int4 and float8 alone. All of this together would be 250 rows for a firing,
-- and more than a millisecond of the server's CPU.

-- What keeps a firing from its start: the key's own pause, else that of all keys, else the drain of its host. What oncecron
-- runs for itself tells people of the last two: its own pause alone.
create function {ns}.stop_v1(p_key text, p_host text) returns setof {ns}.pause
language sql stable as $$
  select x.* from {ns}.pause x
   where case when x.kind = 'key' then x.name::text in (p_key, '*') else x.name::text = p_host end
     and (x.name::text = p_key and x.kind = 'key' or not starts_with(p_key, 'oncecron/'))
     and (x.until::timestamptz is null or x.until::timestamptz > pg_catalog.clock_timestamp())
   order by case when x.kind <> 'key' then 2 when x.name::text = '*' then 1 else 0 end limit 1
$$;

-- Settings that end the session of a dead client soon after packets stop, and free its lock: a firing that only looks may wait
-- for hours. And what a session needs that a role or a database may have set otherwise: a claim's transactions are read
-- committed, a claim and an end wait for the disk, times are sent in full, and the client's deadlines alone end a statement.
-- True. They would stick to a pooler's connection.
create function {ns}.set_up_session_v1(p_ttl double precision) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select set_config('default_transaction_isolation', 'read committed', false) is not null
     and set_config('statement_timeout', '0', false) is not null and set_config('lock_timeout', '0', false) is not null
     and set_config('extra_float_digits', '1', false) is not null
     and (current_setting('synchronous_commit') in ('on', 'remote_apply') or set_config('synchronous_commit', 'on', false) is not null)
     and set_config('tcp_keepalives_idle', '10', false) is not null and set_config('tcp_keepalives_interval', '5', false) is not null
     and set_config('tcp_keepalives_count', '3', false) is not null and set_config('tcp_user_timeout', '25000', false) is not null
     and (current_setting('server_version_num')::int < 140000
          or set_config('client_connection_check_interval', '5000', false) is not null
             and set_config('idle_session_timeout', (greatest(float8 '600', float8 '10' * p_ttl) * float8 '1000')::bigint::text, false) is not null)
     and (current_setting('server_version_num')::int < 170000 or set_config('transaction_timeout', '0', false) is not null)
$$;

-- The key's row, and who keeps the firing from its start.  Without the row, most columns are null.  p_client_backend: the
-- backend as the client knows it, behind a transaction pooler another one than this; negative for a session that is not
-- to be held, which then counts as a pooler's in all functions. start_...: the newest start.
create function {ns}.look_v1(
  p_key text, p_shard integer, p_host text, p_owner uuid, p_client_backend integer, p_ttl double precision,
  out in_recovery boolean, out isolation text, out own_backend boolean, out now double precision,
  out stop_kind text, out stop_author text, out stop_reason text, out stop_since double precision,
  out key_id integer, out version bigint, out first_id integer, out divisions text, out divided_until double precision,
  out fence bigint, out high_water double precision, out seen_until double precision, out running bigint,
  out lease_execution_id bigint, out lease_ttl double precision, out lease_expires_at double precision,
  out lease_heartbeat_at double precision, out lease_has_session boolean, out lease_backend_pid integer,
  out tick text, out tick_known boolean, out start_execution_id bigint, out start_attempt integer, out start_outcome text,
  out start_retrying boolean, out start_requested_by text, out start_started_at double precision, out start_host text,
  out start_pid integer, out start_user text, out is_own boolean,
  out last_execution_id bigint, out last_start double precision, out last_lateness double precision,
  out schema_version integer, out schema_oldest integer, out presence text
)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select case when pg_is_in_recovery() then true end, current_setting('transaction_isolation'),
         -- As a condition: `set_up() and false` would be folded, and 18 knows the parameters when it plans.
         case when abs(p_client_backend) = pg_backend_pid() and {ns}.set_up_session_v1(p_ttl)
              then case when p_client_backend > 0 then true end end,
         date_part('epoch'::text, n.at),
         s.kind, s.author, s.reason, date_part('epoch'::text, s.created_at),
         k.key_id, k.version, d.key_id, d.divisions, date_part('epoch'::text, d.divided_until::timestamptz),
         k.fence, date_part('epoch'::text, k.high_water::timestamptz), date_part('epoch'::text, k.seen_until::timestamptz),
         k.running,
         k.execution_id, date_part('epoch'::text, k.ttl::interval), date_part('epoch'::text, k.expires_at),
         date_part('epoch'::text, k.heartbeat_at), case when k.session_lock then true end, k.backend_pid,
         k.tick, case when k.tick_known then true end, k.newest_id, k.tick_attempt, k.newest_outcome,
         case when k.retrying then true end, k.requested_by, date_part('epoch'::text, k.newest_started_at::timestamptz),
         k.host, k.pid, k.user_name, case when k.newest_owner = p_owner then true end,
         k.last_execution_id, date_part('epoch'::text, k.last_started_at::timestamptz), k.last_lateness,
         m.version, m.oldest, (select h.presence from {ns}.key_host h where h.key_id = k.key_id and h.host = p_host)
    from (select clock_timestamp() as at) n
    left join {ns}.meta m on true
    left join {ns}.job_key k on k.key::text = p_key and k.shard::int = p_shard
    left join {ns}.job_key d on d.key::text = p_key and d.shard::int = 0
    left join {ns}.stop_v1(p_key, p_host) s on true
$$;

-- What only the log tells, and the session lock.  Called in the same statement as look_v1, it sees the same instant.
-- p_awaited: only without a tick.
create function {ns}.look_at_log_v1(
  p_key_id integer, p_owner uuid, p_tick text, p_shards integer, p_awaited bigint, p_client_backend integer,
  out newest_execution_id bigint, out newest_attempt integer, out newest_outcome text, out newest_retrying boolean,
  out newest_requested_by text, out newest_started_at double precision, out newest_host text, out newest_pid integer,
  out newest_user text,
  out attempts integer, out forgotten boolean, out other_shards integer, out lock text, out lease_backend_start bigint,
  out own_execution_id bigint, out own_attempt integer, out own_outcome text, out own_retrying boolean,
  out own_requested_by text, out own_started_at double precision, out own_host text, out own_pid integer, out own_user text,
  out own_fencing_token bigint, out own_cause text, out own_place text, out own_has_lease boolean
)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.execution_id, t.attempt, t.outcome, case when t.retrying then true end, t.requested_by,
         date_part('epoch'::text, t.started_at::timestamptz), t.host, t.pid, t.user_name,
         a.highest, case when a.highest > a.found then true end,    -- an attempt that retention has removed may have started
         (select x.shards from {ns}.job_key j join {ns}.job_execution x on x.key_id = j.key_id
           where j.key::text = k.key::text and x.tick::text = p_tick and x.shards::int <> p_shards limit 1),
         {ns}.lock_state_of_v1(k.key_id, k.version,
           {ns}.lock_state_v1(k.key_id, p_client_backend, k.expires_at > clock_timestamp())),
         {ns}.microseconds(k.backend_start),
         o.execution_id, o.attempt, o.outcome, case when o.retrying then true end, o.requested_by,
         date_part('epoch'::text, o.started_at::timestamptz), o.host, o.pid, o.user_name, o.fencing_token, o.cause, o.place,
         case when o.execution_id = k.execution_id then true end
    from {ns}.job_key k
    left join lateral (
      select x.* from {ns}.job_execution x
       where x.owner = p_owner and x.key_id = k.key_id order by x.owner_attempt::int desc limit 1) o on true
    left join lateral (
      (select x.* from {ns}.job_execution x
        where x.key_id = k.key_id and x.tick::text = p_tick order by x.outcome = 'not-started', x.attempt::int desc limit 1)
      union all
      (select x.* from {ns}.job_execution x
        where x.key_id = k.key_id and x.tick is null and x.execution_id >= p_awaited
          and exists (select from {ns}.job_execution y where y.execution_id = p_awaited and y.tick is null)
        order by x.outcome = 'not-started', x.execution_id desc limit 1)) t on true
    left join lateral (
      select max(x.attempt::int) as highest, count(*) as found from {ns}.job_execution x
       where x.key_id = k.key_id and x.tick::text = p_tick) a on true
   where k.key_id = p_key_id
$$;

-- What only the log tells about a tick, for a claim that was granted nothing before. The session lock is looked at where
-- there is a lease of another tick. An attempt that did not start comes after all others, whose numbers are at most a million.
create function {ns}.look_at_tick_v1(
  p_key_id integer, p_tick text, p_shards integer, p_client_backend integer,
  out newest_execution_id bigint, out newest_attempt integer, out newest_outcome text, out newest_retrying boolean,
  out newest_requested_by text, out newest_started_at double precision, out newest_host text, out newest_pid integer,
  out newest_user text,
  out attempts integer, out forgotten boolean, out other_shards integer, out lock text, out lease_backend_start bigint
)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.execution_id, t.attempt, t.outcome, case when t.retrying then true end, t.requested_by,
         date_part('epoch'::text, t.started_at::timestamptz), t.host, t.pid, t.user_name, t.highest, case when t.highest > t.found then true end,
         (select x.shards from {ns}.job_execution x
           where x.key_id = any (array(select j.key_id from {ns}.job_key j where j.key::text = k.key::text))
             and x.tick::text = p_tick and x.shards::int <> p_shards limit 1),
         case when k.owner is not null and k.tick::text is distinct from p_tick then {ns}.lock_state_of_v1(k.key_id, k.version,
           {ns}.lock_state_v1(k.key_id, p_client_backend, k.expires_at > clock_timestamp())) end,
         case when k.owner is not null and k.tick::text is distinct from p_tick then {ns}.microseconds(k.backend_start) end
    from {ns}.job_key k
    left join lateral (
      select x.*, max(x.attempt::int) over () as highest, count(*) over () as found from {ns}.job_execution x
       where x.key_id = k.key_id and x.tick::text = p_tick
       order by case when x.outcome <> 'not-started' then x.attempt::int else x.attempt::int - 1000000 end desc limit 1) t on true
   where k.key_id = p_key_id
$$;

-- What is known of the time since an instant, for a firing that may have ticks to make up: rows of core/making_up.py, as JSON.
create function {ns}.look_back_v1(p_key text, p_shard integer, p_since double precision, p_tick_since text) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  with own as (select k.* from {ns}.job_key k where k.key = p_key and k.shard = p_shard),
  hosts as (select h.host from {ns}.key_host h join own using (key_id)),
  found as (
    select json_build_array('plan', k.schedule, k.zone, date_part('epoch', k.expected_since), null) as row
      from own k where k.schedule is not null
    union all
    select json_build_array(case x.kind when 'key' then 'pause' else 'drain' end, x.name, x.past,
                            date_part('epoch', x.created_at), date_part('epoch', x.until::timestamptz))
      from {ns}.pause x
     where x.kind = 'key' and x.name in (p_key, '*') or x.kind = 'host' and x.name in (select h.host from hosts h)
    union all
    select json_build_array('host', h.host, null, null, null) from hosts h
    union all
    select json_build_array(s.reason, s.tick, s.host, null, null)
      from {ns}.skip s join own using (key_id) where s.reason in ('paused', 'drained') and s.tick > p_tick_since
    union all
    select json_build_array('run', null, null, date_part('epoch', x.started_at::timestamptz), date_part('epoch', x.finished_at::timestamptz))
      from own cross join lateral (
              (select e.* from {ns}.job_execution e
                where e.key_id = own.key_id and (e.tick is null or e.tick_at is not null) order by e.execution_id desc limit 100)
              union all
              (select e.* from {ns}.job_execution e
                where e.key_id = own.key_id and e.tick is not null and e.tick_at is null order by e.execution_id desc limit 100)) x
     where x.finished_at > to_timestamp(p_since) and x.outcome not in ('not-started', 'unclaimed'))
  select coalesce(json_agg(f.row), '[]')::text from found f
$$;
