-- The queries of `oncecron items`; see reader.sql.

-- name: item_lists
select x.key, x.tick, x.total::bigint, x.queued::bigint, x.taken::bigint, x.done::bigint, x.failed::bigint, x.lost::bigint, x.dead::bigint,
       extract(epoch from x.loaded_at)::float8
  from {ns}.item_lists x where %(key)s::text is null or x.key = %(key)s

-- name: items
select x.key, x.tick, x.position, x.item, x.item_id, x.state, x.attempts, x.execution_id, extract(epoch from x.since)::float8,
       extract(epoch from x.not_before)::float8, x.reason, x.payload
  from {ns}.items x
 where x.key = %(key)s and x.tick = %(tick)s
   and (%(identities)s::text[] is null or x.item = any (%(identities)s::text[]))
 order by x.position

-- name: mend_items
select {ns}.mend_items_v1(%(key)s, %(tick)s, %(states)s, %(identities)s::text[], %(state)s, %(reason)s)
