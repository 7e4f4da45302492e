-- Remove expired rows, a few at a time, but never an execution with a lease: it runs, or a retry is to follow.

-- name: least_retention
-- Null where `init` has set none.
SELECT (SELECT CAST(value AS REAL) FROM meta WHERE name = 'least_executions'),
       (SELECT CAST(value AS REAL) FROM meta WHERE name = 'least_skips')

-- name: set_least_retention
INSERT INTO meta (name, value) VALUES ('least_' || :name, :seconds)
 ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: expire_executions
DELETE FROM job_execution WHERE execution_id IN (
  SELECT execution_id FROM job_execution
   WHERE named = 0 AND started_at < :before AND outcome <> 'running'
     AND execution_id NOT IN (SELECT execution_id FROM lease)
   ORDER BY started_at
   LIMIT :most)

-- name: oldest_kept_name
-- When the oldest of the newest `names` names of a key started: each has one first attempt.
SELECT started_at FROM job_execution
 WHERE key = :key AND shard = :shard AND named = 1 AND attempt = 1
 ORDER BY started_at DESC
 LIMIT 1 OFFSET :names - 1

-- name: expire_names
-- A later attempt may have started before the first one, on a host that could not reach the store: it goes with its name.
DELETE FROM job_execution WHERE execution_id IN (
  SELECT e.execution_id FROM job_execution e
   WHERE e.key = :key AND e.shard = :shard AND e.named = 1 AND e.started_at < :before AND e.started_at < :oldest
     AND e.outcome <> 'running' AND e.execution_id NOT IN (SELECT execution_id FROM lease)
     AND NOT EXISTS (SELECT 1 FROM job_execution f
                      WHERE f.key = e.key AND f.tick = e.tick AND f.shard = e.shard AND f.attempt = 1 AND f.started_at >= :oldest)
   ORDER BY e.started_at
   LIMIT :most)

-- name: expire_pauses
-- They do not come back when the clock is set back.
UPDATE pause SET past = substr(past || printf('%010d-%010d ', at, until + 1), -990), at = 0, until = 0
 WHERE until <= :now AND until > 0

-- name: forget_pauses
DELETE FROM pause WHERE until <= 0 AND CAST(substr(past, -11) AS INTEGER) < :before

-- name: expire_key_hosts
DELETE FROM key_host WHERE seen_at < :before

-- name: expire_skips
DELETE FROM skip WHERE (key, tick, shard, host, reason) IN (
  SELECT key, tick, shard, host, reason FROM skip WHERE at < :before ORDER BY at LIMIT :most)

-- name: expire_plain_skips
DELETE FROM plain_skips WHERE (key, shard, window, host) IN (
  SELECT key, shard, window, host FROM plain_skips WHERE at < :before ORDER BY at LIMIT :most)
RETURNING length(words) - length(replace(words, ' ', ''))
