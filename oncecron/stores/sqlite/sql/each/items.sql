-- The items of a tick; oncecron_each/item_model.py says what the states mean.
-- `living`: whether the execution of a slot s of a list l has its lease.

-- name: living
EXISTS (SELECT 1 FROM lease v
         WHERE v.key = l.key AND v.shard = s.shard AND v.execution_id = s.execution_id
           AND v.boot = :boot AND v.expires_on_lease_clock > :lease_now)

-- name: held
-- Whether an execution has its lease.
SELECT 1
  FROM lease v JOIN job_execution e ON e.execution_id = v.execution_id
 WHERE v.key = :key AND v.shard = :shard AND v.execution_id = :execution_id AND v.owner = :owner
   AND v.boot = :boot AND v.expires_on_lease_clock > :lease_now AND e.outcome = 'running'

-- name: find_drawing
-- For a draw of an execution that has its lease: its host, the list of its tick, and its slot.
SELECT e.host, l.list_id, l.key, l.total, l.next, l.loaded_at, s.execution_id, s.number, s.first, s.size, s.taken_at
  FROM lease v JOIN job_execution e ON e.execution_id = v.execution_id
  LEFT JOIN item_list l ON l.key = v.key AND l.tick = e.tick
  LEFT JOIN item_slot s ON s.list_id = l.list_id AND s.shard = v.shard
 WHERE v.key = :key AND v.shard = :shard AND v.execution_id = :execution_id AND v.owner = :owner
   AND v.boot = :boot AND v.expires_on_lease_clock > :lease_now AND e.outcome = 'running'

-- name: find_list
SELECT * FROM item_list WHERE key = :key AND tick = :tick

-- name: make_list
INSERT INTO item_list (key, tick) VALUES (:key, :tick)

-- name: remove_leftovers
-- What a load has left that was cut off, a part at a time.
DELETE FROM item WHERE list_id = :list_id AND position > :position AND position <= :loading_until

-- name: begin_load
UPDATE item_list
   SET loading_execution = :loading_execution, loading_number = -1, loading_from = total, loading_until = :loading_until,
       loading_known = 0, loading_repeated = 0
 WHERE list_id = :list_id

-- name: position_of
SELECT position FROM item WHERE list_id = :list_id AND item_id = :item_id

-- name: put_items
INSERT OR IGNORE INTO item (list_id, position, item_id, identity, payload) VALUES (?, ?, ?, ?, ?)

-- name: end_step
UPDATE item_list
   SET loading_number = :number, loading_until = :loading_until, loading_known = :loading_known,
       loading_repeated = :loading_repeated
 WHERE list_id = :list_id

-- name: end_load
UPDATE item_list SET total = loading_until, loaded_at = :now, keep = max(keep, :keep) WHERE list_id = :list_id

-- name: put_slot
INSERT INTO item_slot (list_id, shard, execution_id, number, first, size, taken_at)
 VALUES (:list_id, :shard, :execution_id, :number, :first, :size, :now)
 ON CONFLICT (list_id, shard) DO UPDATE
   SET execution_id = excluded.execution_id, number = excluded.number, first = excluded.first, size = excluded.size,
       taken_at = excluded.taken_at

-- name: dead_slots
-- The slots with a batch in doubt.
SELECT s.* FROM item_slot s JOIN item_list l USING (list_id)
 WHERE s.list_id = :list_id AND s.first IS NOT NULL AND NOT {living}

-- name: doubt_items
-- The batch of a slot whose execution is dead becomes items of their own.
INSERT OR IGNORE INTO item_mark (list_id, position, state, attempts, not_before, shard, execution_id, changed_at)
 SELECT list_id, position, :state, 1, CASE WHEN :state = 'queued' THEN :now END, :shard, :execution_id, :taken_at
   FROM item WHERE list_id = :list_id AND position >= :first AND position < :first + :size

-- name: put_batch
INSERT OR IGNORE INTO item_batch (list_id, first, size, execution_id, taken_at, settled_at)
 VALUES (:list_id, :first, :size, :execution_id, :taken_at, :now)

-- name: clear_slot
UPDATE item_slot SET first = NULL, size = NULL WHERE list_id = :list_id AND shard = :shard

-- name: is_taken
SELECT 1 FROM item_mark WHERE list_id = :list_id AND position = :position AND state = 'taken' AND execution_id = :execution_id

-- name: put_result
INSERT INTO item_mark (list_id, position, state, attempts, not_before, shard, execution_id, changed_at, reason)
 VALUES (:list_id, :position, :state, 1, :not_before, :shard, :execution_id, :now, :reason)
 ON CONFLICT (list_id, position) DO UPDATE
   SET state = excluded.state, not_before = excluded.not_before, changed_at = excluded.changed_at, reason = excluded.reason

-- name: settle_rest
UPDATE item_mark SET state = 'done', changed_at = :now
 WHERE list_id = :list_id AND execution_id = :execution_id AND state = 'taken'

-- name: redraw_items
UPDATE item_mark SET state = 'queued', not_before = :now
 WHERE list_id = :list_id AND position IN (
   SELECT s.position FROM item_mark s JOIN item_list l USING (list_id)
    WHERE s.list_id = :list_id AND s.state IN ('taken', 'lost') AND s.attempts < :redraw_below
      AND (s.state = 'lost' OR NOT {living}))

-- name: take_due
UPDATE item_mark
   SET state = 'taken', not_before = NULL, attempts = attempts + 1, shard = :shard, execution_id = :execution_id, changed_at = :now
 WHERE list_id = :list_id AND position IN (
   SELECT position FROM item_mark
    WHERE list_id = :list_id AND state IN ('queued', 'failed') AND not_before <= :now ORDER BY not_before LIMIT :wanted)

-- name: take_next
UPDATE item_list SET next = next + :size WHERE list_id = :list_id

-- name: taken_items
-- CROSS JOIN: the marks first, for SQLite would read the whole list.
SELECT i.position, i.identity, coalesce(i.payload, i.identity) AS payload, 1 AS attempt
  FROM item i WHERE i.list_id = :list_id AND i.position >= :first AND i.position < :first + :size
UNION ALL
SELECT i.position, i.identity, coalesce(i.payload, i.identity), m.attempts
  FROM item_mark m CROSS JOIN item i USING (list_id, position)
 WHERE m.list_id = :list_id AND m.execution_id = :execution_id AND m.state = 'taken'
 ORDER BY 1

-- name: next_retry
SELECT min(not_before) FROM item_mark WHERE list_id = :list_id AND state IN ('queued', 'failed')

-- name: taken_by_others
SELECT (SELECT coalesce(sum(s.size), 0) FROM item_slot s JOIN item_list l USING (list_id)
         WHERE s.list_id = :list_id AND s.execution_id <> :execution_id AND s.size > 0 AND {living})
     + (SELECT count(*) FROM item_mark s JOIN item_list l USING (list_id)
         WHERE s.list_id = :list_id AND s.execution_id <> :execution_id AND s.state = 'taken' AND {living})

-- name: item_lists
-- The lists that were loaded, with their counts. An item that is drawn for the first time has no mark: it is `taken` or `lost`
-- as long as it is in its slot's batch, and `done` after that.
SELECT l.key, l.tick, l.total, l.total - l.next + 1 + m.queued, t.taken + m.taken,
       l.next - 1 - t.taken - t.lost - m.marked + m.done, m.failed, t.lost + m.lost, m.dead, l.loaded_at
  FROM item_list l
  JOIN (SELECT l.list_id, coalesce(sum(CASE WHEN {living} THEN s.size END), 0) AS taken,
               coalesce(sum(CASE WHEN NOT {living} THEN s.size END), 0) AS lost
          FROM item_list l LEFT JOIN item_slot s ON s.list_id = l.list_id AND s.size > 0
         WHERE (:key IS NULL OR l.key = :key) AND (:tick IS NULL OR l.tick = :tick) GROUP BY l.list_id) t USING (list_id)
  JOIN (SELECT l.list_id, count(s.state) AS marked, count(CASE WHEN s.state = 'queued' THEN 1 END) AS queued,
               count(CASE WHEN s.state = 'done' THEN 1 END) AS done, count(CASE WHEN s.state = 'failed' THEN 1 END) AS failed,
               count(CASE WHEN s.state = 'taken' AND {living} THEN 1 END) AS taken,
               count(CASE WHEN s.state = 'lost' OR s.state = 'taken' AND NOT {living} THEN 1 END) AS lost,
               count(CASE WHEN s.state = 'dead' THEN 1 END) AS dead
          FROM item_list l LEFT JOIN item_mark s ON s.list_id = l.list_id
         WHERE (:key IS NULL OR l.key = :key) AND (:tick IS NULL OR l.tick = :tick) GROUP BY l.list_id) m USING (list_id)
 WHERE l.loaded_at IS NOT NULL AND l.tick IS NOT NULL
 ORDER BY l.loaded_at DESC, l.key, l.tick

-- name: items
-- The items after a position: with marks, in a batch that is not settled, of settled batches, and not drawn yet.
SELECT l.key, l.tick, i.position, i.identity AS item, lower(hex(i.item_id)) AS item_id,
       CASE WHEN s.position IS NOT NULL THEN CASE WHEN s.state = 'taken' AND NOT {living} THEN 'lost' ELSE s.state END
            WHEN i.position >= l.next THEN 'queued'
            ELSE coalesce((SELECT CASE WHEN {living} THEN 'taken' ELSE 'lost' END FROM item_slot s
                            WHERE s.list_id = l.list_id AND i.position >= s.first AND i.position < s.first + s.size), 'done') END AS state,
       coalesce(s.attempts, i.position < l.next) AS attempts,
       CASE WHEN s.position IS NOT NULL THEN s.execution_id
            ELSE coalesce((SELECT t.execution_id FROM item_slot t
                            WHERE t.list_id = l.list_id AND i.position >= t.first AND i.position < t.first + t.size), b.execution_id) END
         AS execution_id,
       CASE WHEN s.position IS NOT NULL THEN s.changed_at
            ELSE coalesce((SELECT t.taken_at FROM item_slot t
                            WHERE t.list_id = l.list_id AND i.position >= t.first AND i.position < t.first + t.size), b.settled_at) END
         AS since,
       CASE WHEN s.state = 'failed' THEN s.not_before END AS not_before, s.reason, coalesce(i.payload, i.identity) AS payload
  FROM item_list l
  JOIN item i ON i.list_id = l.list_id AND i.position <= l.total
  LEFT JOIN item_mark s ON s.list_id = i.list_id AND s.position = i.position
  LEFT JOIN item_batch b ON b.list_id = i.list_id AND b.first = (
    SELECT max(c.first) FROM item_batch c WHERE c.list_id = i.list_id AND c.first <= i.position)
   AND i.position < b.first + b.size
 WHERE l.key = :key AND l.tick = :tick AND (:identities IS NULL OR i.identity IN (SELECT value FROM json_each(:identities)))
 ORDER BY i.position

-- name: mend_item
UPDATE item_mark
   SET state = :state, not_before = CASE WHEN :state = 'queued' THEN :now END, changed_at = :now, reason = :reason
 WHERE list_id = :list_id AND position = :position

-- name: marked_items
SELECT s.position, CASE WHEN s.state = 'taken' AND NOT {living} THEN 'lost' ELSE s.state END AS state
  FROM item_mark s CROSS JOIN item_list l USING (list_id) CROSS JOIN item i USING (list_id, position)
 WHERE s.list_id = :list_id AND (:identities IS NULL OR i.identity IN (SELECT value FROM json_each(:identities)))
