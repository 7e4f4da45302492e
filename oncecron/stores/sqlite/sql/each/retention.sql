-- Remove the lists of items that have expired, a few rows at a time.

-- name: expire_lists
-- No execution of its tick is in the log, but old ones whose host has died, and the last load is older than this, and than what
-- the list asked for. Or its first load was cut off. A list without a tick is known to nobody any more.
UPDATE item_list SET tick = NULL, loaded_at = NULL
 WHERE loaded_at < :before AND loaded_at + keep < :now
       AND NOT EXISTS (SELECT 1 FROM job_execution e
                        WHERE e.key = item_list.key AND e.tick = item_list.tick
                          AND (e.outcome <> 'running' OR e.started_at >= :before
                               OR EXISTS (SELECT 1 FROM lease v WHERE v.execution_id = e.execution_id
                                             AND v.boot = :boot AND v.expires_on_lease_clock > :lease_now)))
    OR loaded_at IS NULL AND tick IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM lease v WHERE v.execution_id = item_list.loading_execution
                          AND v.boot = :boot AND v.expires_on_lease_clock > :lease_now)

-- name: expired_list
SELECT list_id FROM item_list WHERE tick IS NULL LIMIT 1

-- name: expire_marks
DELETE FROM item_mark WHERE list_id = :list_id
   AND position IN (SELECT position FROM item_mark WHERE list_id = :list_id LIMIT :most)

-- name: expire_batches
DELETE FROM item_batch WHERE list_id = :list_id AND first IN (SELECT first FROM item_batch WHERE list_id = :list_id LIMIT :most)

-- name: expire_items
DELETE FROM item WHERE list_id = :list_id AND position IN (SELECT position FROM item WHERE list_id = :list_id LIMIT :most)

-- name: expire_slots
DELETE FROM item_slot WHERE list_id = :list_id

-- name: expire_list
DELETE FROM item_list WHERE list_id = :list_id
