-- The queries of the commands for people.  {ns} stands for the quoted schema; {execution_columns} and the like stand for the
-- section of that name.  Queries read only views and catalogs, because --read-role may see nothing else.

-- name: set_up
-- The settings of set_up_session_v1 (look.sql).  They would stick to a pooler's connection.  To compile a report takes longer
-- than to run it: 1.0 of 2.6 s.
select pg_catalog.set_config(s.name, s.setting, false)
  from (values ('tcp_keepalives_idle', '10', 0), ('tcp_keepalives_interval', '5', 0), ('tcp_keepalives_count', '3', 0),
               ('tcp_user_timeout', '25000', 0), ('default_transaction_isolation', 'read committed', 0),
               ('statement_timeout', '0', 0), ('lock_timeout', '0', 0), ('idle_in_transaction_session_timeout', '0', 0),
               ('jit', 'off', 0), ('idle_session_timeout', '0', 14), ('transaction_timeout', '0', 17), ('extra_float_digits', '1', 0),
               ('search_path', 'pg_catalog, pg_temp', 0)) s (name, setting, since)
 where pg_catalog.pg_backend_pid() = %(client_backend)s and pg_catalog.current_setting('server_version_num')::int >= 10000 * s.since

-- name: installed
-- Does the schema exist, may this role use it, and does it have oncecron's tables?  The query reads catalogs that every role may
-- read, so it never fails.
select n.oid is not null, coalesce(pg_catalog.has_schema_privilege(n.oid, 'usage'), false), c.oid is not null,
       coalesce(pg_catalog.has_table_privilege(c.oid, 'select'), false)
  from (select) one
  left join pg_catalog.pg_namespace n on n.nspname = %(namespace)s
  left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = 'meta'

-- name: version
select version, oldest from {ns}.meta

-- name: namespaces
-- A schema belongs to oncecron if it has its tables.
select n.nspname
  from pg_catalog.pg_namespace n
  join pg_catalog.pg_class meta on meta.relnamespace = n.oid and meta.relname = 'meta'
  join pg_catalog.pg_class executions on executions.relnamespace = n.oid and executions.relname = 'executions'
 where pg_catalog.has_schema_privilege(n.oid, 'usage')

-- name: lock_schema
-- One at a time: concurrent grants fail. Only the owner may take this lock. It is released with the transaction.
lock table {ns}.meta in share row exclusive mode

-- name: intruders
-- Who else could change what is in the schema: another owner, or a role that may create objects in it.
select r.what, case when r.role = 0 then 'public' else pg_catalog.pg_get_userbyid(r.role) end, r.what is null
  from pg_catalog.pg_namespace n
  join pg_catalog.pg_roles me on me.rolname = current_user
  cross join lateral (
    select 'schema ' || n.nspname, n.nspowner
    union all
    select c.relname, c.relowner from pg_catalog.pg_class c where c.relnamespace = n.oid
    union all
    select p.proname, p.proowner from pg_catalog.pg_proc p where p.pronamespace = n.oid
    union all
    select t.typname, t.typowner from pg_catalog.pg_type t where t.typnamespace = n.oid
    union all
    select null, a.grantee from pg_catalog.aclexplode(n.nspacl) a where a.privilege_type = 'CREATE') r (what, role)
 where n.nspname = %(namespace)s and r.role <> me.oid
 limit 1

-- name: execution_columns
e.execution_id, e.key, e.shard, e.tick, e.attempt, e.outcome, e.exit_code, e.signal, e.host, e.pid, e."user", e.command,
       extract(epoch from e.started_at)::float8 as started_at, extract(epoch from e.finished_at)::float8 as finished_at,
       e.duration, e.fencing_token, e.owner, e.note, e.shards,
       e.cause, e.lost_reason, e.request, e.requested_by, e.place,
       extract(epoch from e.tick_at)::float8 as instant, extract(epoch from e.fired_at)::float8 as fired_at,
       extract(epoch from e.lost_at)::float8 as lost_at

-- name: execution_filters
-- The server plans for the given values, so a null filter costs nothing.
(%(before)s::bigint is null or e.execution_id < %(before)s)
   and (%(since)s::float8 is null or e.started_at >= pg_catalog.to_timestamp(%(since)s))
   and (%(until)s::float8 is null or e.started_at < pg_catalog.to_timestamp(%(until)s))
   and (%(host)s::text is null or e.host = %(host)s)
   and (%(without)s::text is null or not pg_catalog.starts_with(e.key, %(without)s))
   and (%(outcomes)s::text[] is null or e.outcome = any (%(outcomes)s))
   and (not %(exhausted)s::boolean or e.retries > 0 and e.outcome in ('failed', 'timed-out', 'lost') and e.exhausted)

-- name: history
-- A page of the log by its primary key, newest first.
select {execution_columns}
  from {ns}.executions e
 where {execution_filters}
 order by e.execution_id desc
 limit %(limit)s

-- name: executions_of_keys
{ns}.keys k
 cross join lateral (
   (select {execution_columns}
      from {ns}.executions e
     where e.key_id between k.key_id and k.key_id and e.tick is not null and e.tick_at is null and {execution_filters}
     order by e.key_id desc, e.execution_id desc limit %(limit)s)
    union all
   (select {execution_columns}
      from {ns}.executions e
     where e.key_id between k.key_id and k.key_id and (e.tick is null or e.tick_at is not null) and {execution_filters}
     order by e.key_id desc, e.execution_id desc limit %(limit)s)) h

-- name: history_of_key
-- The same for one key, all its shards, by the two partial indexes on (key_id, execution_id).  `between` instead of `=` makes
-- their order the only one that fits: for `=` the planner takes the primary key and, where the key rarely runs or has stopped
-- running, reads the whole log.
select h.* from {executions_of_keys}
 where k.key = %(key)s
 order by h.execution_id desc
 limit %(limit)s

-- name: newest
-- The newest executions of many keys, in the same way, without the texts, which may be long: no row of another role's making
-- fills the memory of those who ask.
select n.execution_id, n.key, n.shard, n.tick, n.attempt, n.outcome, n.exit_code, n.signal, n.host, n.pid, n."user", '' as command,
       n.started_at, n.finished_at, n.duration, n.fencing_token, n.owner, null as note, n.shards,
       n.cause, n.lost_reason, n.request, n.requested_by, null as place, n.instant, n.fired_at, n.lost_at
  from (select distinct k.key from {ns}.keys k where %(keys)s::text[] is null or k.key = any (%(keys)s)) wanted
 cross join lateral (
   select h.* from {executions_of_keys}
    where k.key = wanted.key
    order by h.execution_id desc
    limit %(limit)s) n

-- name: history_of_tick
-- One tick, of one key or of all, by unique (key_id, tick, attempt).
select h.*
  from {ns}.keys k
 cross join lateral (
   select {execution_columns}
     from {ns}.executions e
    where e.key_id = k.key_id and e.tick = %(tick)s and {execution_filters}
    order by e.execution_id desc limit %(limit)s) h
 where %(key)s::text is null or k.key = %(key)s
 order by h.execution_id desc
 limit %(limit)s

-- name: history_after
-- Executions after a given one, oldest first.
select {execution_columns}
  from {ns}.executions e
 where e.execution_id > %(after_id)s and (%(key)s::text is null or e.key = %(key)s)
   and (%(tick)s::text is null or e.tick = %(tick)s) and {execution_filters}
 order by e.execution_id
 limit %(limit)s

-- name: execution
select {execution_columns}
  from {ns}.executions e
 where e.execution_id = %(execution_id)s

-- name: output
select o.output, o.cut from {ns}.outputs o where o.execution_id = %(execution_id)s

-- name: skip_columns
s.key, s.shard, s.tick, s.reason, s.holder_host, s.holder_pid, s.host, s.pid, extract(epoch from s.at)::float8 as at, s.count,
       s.detail, extract(epoch from s.fired_at)::float8 as fired_at

-- name: skip_filters
(%(since)s::float8 is null or s.at >= pg_catalog.to_timestamp(%(since)s))
   and (%(until)s::float8 is null or s.at < pg_catalog.to_timestamp(%(until)s))
   and (%(key)s::text is null or s.key = %(key)s)
   and (%(tick)s::text is null or s.tick_name = %(tick)s)
   and (%(host)s::text is null or s.host = %(host)s)
   and (%(without)s::text is null or not pg_catalog.starts_with(s.key, %(without)s))
   and (%(outcomes)s::text[] is null or s.reason = any (%(outcomes)s))

-- name: plain_filters
-- Which rows of plain skips are read at all. Each skip happened within 500 s of its tick; `minute`: that of the wanted tick.
(%(since)s::float8 is null or s.plain_until >= %(since)s / 60 - 9)
   and (%(tick)s::text is null or %(minute)s::integer between s.plain_from and s.plain_until)

-- name: skips
-- Newest first.  `window` (seconds) lets the index on `at` find the last few without sorting all.  Of the plain ones, the holders
-- are looked up of those that are wanted, and not as in the view of all.
select {skip_columns}
  from {ns}.skips s
 where not s.plain and (%(window)s::float8 is null or s.at >= pg_catalog.now() - pg_catalog.make_interval(secs => %(window)s))
   and {skip_filters}
 union all
select s.key, s.shard, s.tick, s.reason, e.host, e.pid, s.host, null, extract(epoch from s.at)::float8, s.count,
       case s.reason when 'done' then e.outcome end, null
  from (select s.*
          from (select k.key, k.shard, k.key_id, t.tick, t.tick as tick_name, p.host, p.plain_from, p.plain_until, s.count,
                       case s.done when 1 then 'done' else 'held' end as reason,
                       pg_catalog.to_timestamp((p.plain_from + s.minute) * 60.0 - 20 + s.milliseconds / 1000.0) as at
                  from {ns}.plain_rows p
                  join {ns}.keys k using (key_id)
                 cross join lateral (
                   select x >> 20 as minute, x >> 19 & 1 as done, pg_catalog.max(x & 524287) as milliseconds, pg_catalog.count(*) as count
                     from unnest(p.plain) x group by 1, 2) s
                 cross join lateral (
                   select pg_catalog.to_char(pg_catalog.to_timestamp((p.plain_from + s.minute) * 60.0) at time zone 'UTC',
                                             'YYYY-MM-DD"T"HH24:MI"Z"') as tick) t
                 where %(key)s::text is null or p.key_id = any (array(select n.key_id from {ns}.keys n where n.key = %(key)s))) s
         where {plain_filters}
           and (%(window)s::float8 is null or s.plain_until >= extract(epoch from pg_catalog.now()) / 60 - %(window)s / 60 - 9)
           and (%(window)s::float8 is null or s.at >= pg_catalog.now() - pg_catalog.make_interval(secs => %(window)s))
           and {skip_filters}
         order by s.at desc, s.key, s.shard, s.host, s.reason
         limit %(limit)s) s
  left join {ns}.executions e on e.key_id = s.key_id and e.tick = s.tick and e.attempt = 1
 order by at desc, key, shard, host, reason
 limit %(limit)s

-- name: reasons
-- Of ticks no earlier than one of each key, by the primary key of the skips and the index of the plain ones: `offset 0` keeps the
-- planner from reading all skips of all keys. The log of executions, which the view of the skips joins, is not read.
select k.key, s.tick, s.host, s.reason, k.shard
  from unnest(%(keys)s::text[], %(ticks)s::text[]) wanted (key, tick)
  join {ns}.keys k on k.key = wanted.key
 cross join lateral (
   select s.tick, s.host, s.reason from {ns}.skips s
    where not s.plain and s.key_id = k.key_id and s.tick_name >= wanted.tick offset 0) s
 union all
select k.key, pg_catalog.to_char(pg_catalog.to_timestamp(s.minute * 60.0) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"'), s.host,
       case s.done when 1 then 'done' else 'held' end, k.shard
  from unnest(%(keys)s::text[], %(minutes)s::integer[]) wanted (key, minute)
  join {ns}.keys k on k.key = wanted.key
 cross join lateral (
   select distinct p.host, p.plain_from + (x >> 20) as minute, x >> 19 & 1 as done
     from {ns}.plain_rows p cross join unnest(p.plain) x
    where p.key_id = k.key_id and p.plain_until >= wanted.minute and p.plain_from + (x >> 20) >= wanted.minute) s

-- name: reasons_of_ticks
-- Of a few ticks.
select k.key, s.tick, s.host, s.reason, k.shard
  from unnest(%(keys)s::text[], %(ticks)s::text[]) wanted (key, tick)
  join {ns}.keys k on k.key = wanted.key
 cross join lateral (
   select s.tick, s.host, s.reason from {ns}.skips s
    where not s.plain and s.key_id = k.key_id and s.tick_name = wanted.tick offset 0) s
 union all
select k.key, wanted.tick, s.host, case s.done when 1 then 'done' else 'held' end, k.shard
  from unnest(%(keys)s::text[], %(ticks)s::text[], %(minutes)s::integer[]) wanted (key, tick, minute)
  join {ns}.keys k on k.key = wanted.key
 cross join lateral (
   select distinct p.host, x >> 19 & 1 as done
     from {ns}.plain_rows p cross join unnest(p.plain) x
    where p.key_id = k.key_id and wanted.minute between p.plain_from and p.plain_from + 2047 and p.plain_until >= wanted.minute
      and x >> 20 = wanted.minute - p.plain_from) s

-- name: timeline
-- Executions since a time, part by part in the order of starts; the server sorts, on disk if it must.
select {execution_columns}
  from {ns}.executions e
 where (%(since)s::float8 is null or e.started_at >= pg_catalog.to_timestamp(%(since)s))
   and (%(keys)s::text[] is null or e.key = any (%(keys)s))
 order by e.key, e.shard, e.started_at, e.execution_id

-- name: is_packed
-- Never null. An infinite time, which somebody else has written, is read by itself, and named.
(e.attempt = 1 and e.shards = 1 and e.outcome in ('succeeded', 'failed', 'timed-out', 'stopped', 'lost')
        and pg_catalog.isfinite(e.started_at) and (e.tick is null or coalesce(pg_catalog.isfinite(e.tick_at), false)))

-- name: single_runs
-- Executions since a time that are not packed, without the texts.
select e.execution_id, e.key, e.shard, e.tick, e.attempt, e.outcome, e.exit_code, e.signal, e.host, e.pid, e."user", '' as command,
       extract(epoch from e.started_at)::float8 as started_at, extract(epoch from e.finished_at)::float8 as finished_at,
       e.duration, e.fencing_token, e.owner, null as note, e.shards, e.cause, e.lost_reason, e.request, e.requested_by, null as place,
       extract(epoch from e.tick_at)::float8 as instant, extract(epoch from e.fired_at)::float8 as fired_at,
       extract(epoch from e.lost_at)::float8 as lost_at
  from {ns}.executions e
 where e.started_at >= pg_catalog.to_timestamp(%(since)s) and (%(keys)s::text[] is null or e.key = any (%(keys)s))
   and not {is_packed}

-- name: packed_runs
-- The others, grouped by the number of the key: that is half as fast again as by its name.
select k.key, r.host, r.outcome, r.has_tick, r.minutes
  from (select e.key_id, e.host, e.outcome, e.tick is not null as has_tick,
               pg_catalog.string_agg(pg_catalog.floor(pg_catalog.date_part('epoch', coalesce(e.tick_at, e.started_at)) / 60)::bigint::text,
                                     ' ') as minutes
          from {ns}.executions e
         where e.started_at >= pg_catalog.to_timestamp(%(since)s) and (%(keys)s::text[] is null or e.key = any (%(keys)s))
           and {is_packed}
         group by 1, 2, 3, 4) r
  join {ns}.keys k using (key_id)

-- name: keys
select k.key, k.shard, k.schedule, k.zone, k.expected_shards, k.starting_deadline,
       extract(epoch from k.expected_since)::float8, extract(epoch from k.high_water)::float8,
       extract(epoch from k.last_started_at)::float8, extract(epoch from k.forgotten_at)::float8, k.forgotten_by
  from {ns}.keys k

-- name: key_hosts
select h.key, h.shard, h.host, extract(epoch from h.seen_at)::float8, h.presence from {ns}.key_hosts h

-- name: leases
-- A lock without a lease has only the name of its session: `oncecron HOST/PID KEY`.
select l.key, l.shard, l.tick, l.execution_id, l.attempt, l.state,
       coalesce(l.host, pg_catalog.substring(l.application_name, '^oncecron ([^ ]+)/')),
       coalesce(l.pid, pg_catalog.substring(l.application_name, '^oncecron [^ ]*/([0-9]{1,9})( |$)')::integer), l."user",
       extract(epoch from l.acquired_at)::float8, extract(epoch from l.heartbeat_at)::float8,
       extract(epoch from l.expires_at)::float8, l.fencing_token, l.backend_pid, l.client_address,
       l.shards, l.requested_by, extract(epoch from l.request_acknowledged_at)::float8,
       extract(epoch from pg_catalog.clock_timestamp())::float8
  from {ns}.leases l

-- name: pause_columns
p.key, p.host, p.author, p.reason, extract(epoch from p.since)::float8, extract(epoch from p.until)::float8

-- name: pauses
select {pause_columns} from {ns}.pauses p

-- name: pause
select {pause_columns} from {ns}.pause_v1(%(key)s, %(author)s, %(reason)s, %(seconds)s) p

-- name: resume
select {pause_columns} from {ns}.resume_v1(%(key)s) p

-- name: drain
select {pause_columns} from {ns}.drain_v1(%(host)s, %(author)s, %(reason)s, %(seconds)s) p

-- name: undrain
select {pause_columns} from {ns}.undrain_v1(%(host)s) p

-- name: forget
select {ns}.forget_v1(%(key)s, %(author)s)

-- name: forget_host
select {ns}.forget_host_v1(%(host)s)

-- name: request
select {ns}.request_v1(%(key)s, %(shard)s, %(execution_id)s, %(kind)s, %(author)s, %(signal)s, %(grace)s)

-- name: release
select answer, ends_in, backend_pid, backend_start from {ns}.release_v1(%(key)s, %(shard)s, %(execution_id)s, %(author)s)

-- name: unblock
select shard, high_water, last_start from {ns}.unblock_v1(%(key)s, %(shard)s)

-- name: end_session
-- As the calling role: a function of the schema's owner may have fewer rights, or more.  Null: the role may not see the session.
-- Without a start time, the session is the one that was just seen to hold the lock.
select case when a.backend_start is not null then pg_catalog.pg_terminate_backend(a.pid) end
  from pg_catalog.pg_stat_activity a
 where a.pid = %(pid)s and (a.backend_start is null or %(start)s::bigint is null
        or (extract(epoch from a.backend_start) * 1000000)::bigint = %(start)s)

-- name: server
-- The server and this session, for `oncecron doctor`.
select version(), current_user, current_setting('transaction_isolation'), pg_catalog.pg_backend_pid(),
       extract(epoch from pg_catalog.clock_timestamp())::float8,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (select count(*) from pg_catalog.pg_stat_activity where datid is not null)

-- name: rights
-- What this role may do.
select r.name
  from (values ('fire', 'grant_v1'), ('operate', 'pause_v1'), ('check fences', 'assert_fence')) r (name, proname)
 where exists (select from pg_catalog.pg_proc p
                where p.pronamespace = '{ns}'::regnamespace and p.proname = r.proname
                  and pg_catalog.has_function_privilege(p.oid, 'execute'))
 union all
select 'read' where pg_catalog.has_table_privilege('{ns}.executions', 'select')

-- name: offered_roles
-- Who may log in and is neither the owner nor a superuser; nobody if others than the owner have rights already.
select r.rolname from pg_catalog.pg_roles r
 where r.rolcanlogin and not r.rolsuper and r.rolname <> current_user
   and not exists (select from pg_catalog.pg_namespace n, pg_catalog.aclexplode(n.nspacl) a
                    where n.nspname = %(namespace)s and a.grantee <> n.nspowner)
 order by r.rolname

-- name: least_retention
select least_executions, least_skips from {ns}.meta

-- name: part_ids
-- The keys and shards with named ticks, for retention.
select key_id from {ns}.keys order by key_id

-- name: prune
-- One batch of retention in its own transaction; without a key, no named ticks.
select executions, skips, items
  from {ns}.prune_v1(%(key_id)s::integer, pg_catalog.make_interval(secs => %(executions)s),
                      pg_catalog.make_interval(secs => %(skips)s), %(most)s, %(names_kept)s)

-- name: prune_keys
-- Keys of which no shard has ever started, and that have nothing on record. What has started keeps its marks for ever: they say
-- that its ticks are passed. A claim that has just registered such a key finds no row, and registers it again. An array and not
-- a join: without statistics, the server would join 20,000 keys to 20,000 in a nested loop.
delete from {ns}.job_key g
 where g.fence = 0 and g.key_id = any (array(
    select pg_catalog.unnest(pg_catalog.array_agg(k.key_id)) from {ns}.job_key k
     group by k.key
    having pg_catalog.bool_and(k.fence = 0 and k.high_water is null and k.last_started_at is null and k.owner is null
       and not exists (select from {ns}.job_execution e where e.key_id = k.key_id)
       and not exists (select from {ns}.skip s where s.key_id = k.key_id)
       and not exists (select from {ns}.plain_skips p where p.key_id = k.key_id)
       and not exists (select from {ns}.key_host h where h.key_id = k.key_id))))
returning 1
