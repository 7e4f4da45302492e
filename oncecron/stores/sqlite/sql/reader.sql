-- The queries of the commands for people.

-- name: execution_columns
execution_id, key, shard, tick, attempt, outcome, exit_code, signal, host, pid, user, command,
       started_at, finished_at, duration, fencing_token, owner, note, shards, cause, lost_reason, request, requested_by,
       place, tick_instant, fired_at, lost_at

-- name: short_columns
execution_id, key, shard, tick, attempt, outcome, exit_code, signal, host, pid, user, '' AS command,
       started_at, finished_at, duration, fencing_token, owner, NULL AS note, shards, cause, lost_reason, request, requested_by,
       NULL AS place, tick_instant, fired_at, lost_at

-- name: execution_filters
(:since IS NULL OR started_at >= :since) AND (:until IS NULL OR started_at < :until) AND (:host IS NULL OR host = :host)
   AND (:without IS NULL OR substr(key, 1, length(:without)) <> :without)
   AND (:outcomes IS NULL OR outcome IN (SELECT value FROM json_each(:outcomes)))

-- name: history
-- Newest first, any key.
SELECT {execution_columns}
  FROM job_execution
 WHERE {execution_filters} AND (:tick IS NULL OR tick = :tick)
 ORDER BY execution_id DESC

-- name: history_of_key
-- The same by the index of the key.
SELECT {execution_columns}
  FROM job_execution
 WHERE key = :key AND {execution_filters}
 ORDER BY execution_id DESC

-- name: history_of_tick
-- The same by the index that counts a tick's attempts.
SELECT {execution_columns}
  FROM job_execution
 WHERE key = :key AND tick = :tick AND {execution_filters}
 ORDER BY execution_id DESC

-- name: history_after
-- Executions after a given one, oldest first.
SELECT {execution_columns}
  FROM job_execution
 WHERE execution_id > :after_id AND (:key IS NULL OR key = :key)
   AND {execution_filters} AND (:tick IS NULL OR tick = :tick)
 ORDER BY execution_id

-- name: dead_letters
-- Failed for good: all retries failed, or the owner gave up. It is computed: the last attempt of its tick that started, or
-- without a tick the last one of its owner, and no lease is left for a retry.
SELECT {execution_columns}
  FROM job_execution e
 WHERE retries > 0 AND outcome IN ('failed', 'timed-out', 'lost')
   AND (:after_id IS NULL OR execution_id > :after_id) AND (:key IS NULL OR key = :key)
   AND {execution_filters} AND (:tick IS NULL OR tick = :tick)
   AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.execution_id = e.execution_id)
   AND NOT EXISTS (SELECT 1 FROM job_execution later
                    WHERE later.key = e.key AND later.tick = e.tick AND later.shard = e.shard
                      AND later.attempt > e.attempt AND later.outcome <> 'not-started')
   AND NOT EXISTS (SELECT 1 FROM job_execution later
                    WHERE e.tick IS NULL AND later.owner = e.owner AND later.key = e.key AND later.shard = e.shard
                      AND later.owner_attempt > e.owner_attempt AND later.outcome <> 'not-started')
 ORDER BY CASE WHEN :after_id IS NULL THEN -execution_id ELSE execution_id END

-- name: newest
-- The newest of each key, or of some, without the texts, which may be long.
SELECT {short_columns}
  FROM (SELECT DISTINCT key AS wanted FROM job_key WHERE :keys IS NULL OR key IN (SELECT value FROM json_each(:keys)))
  CROSS JOIN job_execution e
    ON e.execution_id IN (SELECT n.execution_id FROM job_execution n WHERE n.key = wanted ORDER BY n.execution_id DESC LIMIT :limit)

-- name: execution
SELECT {execution_columns}
  FROM job_execution
 WHERE execution_id = :execution_id

-- name: output
SELECT output AS text, output_cut AS cut FROM job_execution WHERE execution_id = :execution_id AND output IS NOT NULL

-- name: skip_columns
key, shard, nullif(tick, '') AS tick, reason, holder_host, holder_pid, host, pid, at, count, detail, NULL AS fired_at,
       NULL AS words, NULL AS window

-- name: plain_columns
key, shard, NULL, NULL, NULL, NULL, host, NULL, at, NULL, NULL, NULL, words, window

-- name: skip_filters
(:since IS NULL OR at >= :since) AND (:host IS NULL OR host = :host)
   AND (:without IS NULL OR substr(key, 1, length(:without)) <> :without)

-- name: of_outcome_and_tick
(:outcomes IS NULL OR reason IN (SELECT value FROM json_each(:outcomes))) AND (:tick IS NULL OR tick = :tick)

-- name: near_tick
(:tick IS NULL OR window > :minute - :plain_window AND window <= :minute)

-- name: skips
-- With the plain skips, a text (`words`) for each host and window, by the time of the newest; `minute`: of the tick.
SELECT {skip_columns} FROM skip WHERE {skip_filters} AND {of_outcome_and_tick}
 UNION ALL
SELECT {plain_columns} FROM plain_skips WHERE {skip_filters} AND {near_tick}
 ORDER BY at DESC

-- name: skips_of_key
-- The same by the primary keys.
SELECT {skip_columns} FROM skip WHERE key = :key AND {skip_filters} AND {of_outcome_and_tick}
 UNION ALL
SELECT {plain_columns} FROM plain_skips WHERE key = :key AND {skip_filters} AND {near_tick}
 ORDER BY at DESC

-- name: holders
SELECT execution_id, host, pid, outcome FROM job_execution WHERE execution_id IN (SELECT value FROM json_each(:ids))

-- name: reasons
-- Of ticks no earlier than one of each key, by the primary keys; the plain ones from its window on.
SELECT s.key, s.tick, s.host, s.reason, s.shard, NULL AS words, NULL AS window
  FROM json_each(:ticks) wanted CROSS JOIN skip s ON s.key = wanted.key AND s.tick >= wanted.value
 UNION ALL
SELECT s.key, NULL, s.host, NULL, s.shard, s.words, s.window
  FROM json_each(:minutes) wanted CROSS JOIN job_key k ON k.key = wanted.key
  CROSS JOIN plain_skips s ON s.key = k.key AND s.shard = k.shard AND s.window > wanted.value - :plain_window

-- name: reasons_of_ticks
-- Of a few ticks.
SELECT s.key, s.tick, s.host, s.reason, s.shard, NULL AS words, NULL AS window
  FROM json_each(:wanted) wanted CROSS JOIN json_each(wanted.value) minute
  CROSS JOIN skip s ON s.key = wanted.key AND s.tick = strftime('%Y-%m-%dT%H:%MZ', minute.value * 60, 'unixepoch')
 UNION ALL
SELECT s.key, NULL, s.host, NULL, s.shard, s.words, s.window
  FROM (SELECT DISTINCT wanted.key AS key, minute.value / :plain_window * :plain_window AS window
          FROM json_each(:wanted) wanted CROSS JOIN json_each(wanted.value) minute) near
  CROSS JOIN job_key k ON k.key = near.key
  CROSS JOIN plain_skips s ON s.key = k.key AND s.shard = k.shard AND s.window = near.window

-- name: young
-- By the primary key: neither the index of the starts nor that of the keys reads as fast what is most of the table. The two
-- indexes of the starts alone say where it begins. A unary plus keeps SQLite from taking another index.
execution_id >= CASE WHEN :since IS NULL THEN 0
                     ELSE min((SELECT coalesce(min(+execution_id), 9e15) FROM job_execution WHERE named = 0 AND started_at >= :since),
                              (SELECT coalesce(min(+execution_id), 9e15) FROM job_execution WHERE named = 1 AND started_at >= :since)) END
   AND (:since IS NULL OR +started_at >= :since) AND (:keys IS NULL OR +key IN (SELECT value FROM json_each(:keys)))

-- name: timeline
-- Executions since a time, part by part in the order of starts; sorted on disk if needed.
SELECT {execution_columns}
  FROM job_execution
 WHERE {young}
 ORDER BY key, shard, started_at, execution_id

-- name: is_packed
attempt = 1 AND shards = 1 AND named = 0 AND outcome IN ('succeeded', 'failed', 'timed-out', 'stopped', 'lost')

-- name: single_runs
-- Those that are not packed.
SELECT {short_columns} FROM job_execution WHERE {young} AND NOT ({is_packed})

-- name: packed_runs
-- The others.
SELECT key, host, outcome, tick IS NOT NULL, group_concat(CAST(coalesce(tick_instant, started_at) / 60 AS INTEGER), ' ')
  FROM job_execution
 WHERE {young} AND {is_packed}
 GROUP BY +key, +host, +outcome, tick IS NOT NULL

-- name: keys
SELECT key, shard, schedule, zone, expected_shards, starting_deadline, expected_since, high_water, last_start, forgotten_at, forgotten_by
  FROM job_key

-- name: key_hosts
SELECT key, shard, host, seen_at, presence FROM key_host

-- name: leases
-- `stale`: expired by the lease clock, or not renewed for more than two heartbeats. The time left comes from the lease clock
-- too: `asked_at` is the wall time now, as if the wall clock had not been set since the last heartbeat.
SELECT l.key, l.shard, e.tick, l.execution_id, e.attempt,
       CASE WHEN l.boot = :boot AND l.expires_on_lease_clock > :lease_now
             AND :lease_now - l.heartbeat_on_lease_clock <= 2 * l.ttl / :heartbeats
            THEN 'held' ELSE 'stale' END AS state,
       e.host, e.pid, e.user, l.acquired_at, l.heartbeat_at, l.expires_at, e.fencing_token,
       NULL AS backend_pid, NULL AS client_address, e.shards, l.requested_by, l.request_acknowledged_at,
       CASE WHEN l.boot = :boot THEN l.expires_at - (l.expires_on_lease_clock - :lease_now)
            ELSE max(l.expires_at, :now) END AS asked_at
  FROM lease l LEFT JOIN job_execution e USING (execution_id)

-- name: pauses
-- Those that have not ended.
SELECT CASE kind WHEN 'key' THEN name END AS key, CASE kind WHEN 'host' THEN name END AS host,
       author, reason, at AS since, until
  FROM pause WHERE until IS NULL OR until > :now

-- name: put_pause
INSERT INTO pause (kind, name, until, reason, author, at)
VALUES (CASE WHEN :host IS NULL THEN 'key' ELSE 'host' END, coalesce(:key, :host), :until, :reason, :author, :since)
    ON CONFLICT (kind, name) DO UPDATE
   SET until = excluded.until, reason = excluded.reason, author = excluded.author, at = excluded.at,
       past = CASE WHEN until <= 0 THEN past
              ELSE substr(past || printf('%010d-%010d ', at, min(coalesce(until, excluded.at), excluded.at) + 1), -990) END

-- name: take_pause
-- What was due in it was not missed.
UPDATE pause SET past = substr(past || printf('%010d-%010d ', at, min(coalesce(until, :since), :since) + 1), -990), at = 0, until = 0
 WHERE kind = CASE WHEN :host IS NULL THEN 'key' ELSE 'host' END AND name = coalesce(:key, :host) AND (until IS NULL OR until > 0)

-- name: wrong_marks
-- What a wrong clock has left: no claim may be that far ahead.
SELECT shard, CASE WHEN high_water > :latest THEN high_water END, CASE WHEN last_start > :latest THEN last_start END
  FROM job_key
 WHERE key = :key AND (:shard IS NULL OR shard = :shard) AND (high_water > :latest OR last_start > :latest)
 ORDER BY shard

-- name: cut_marks
UPDATE job_key
   SET high_water = CASE WHEN high_water > :latest THEN :now ELSE high_water END,
       last_start = CASE WHEN last_start > :latest THEN :now ELSE last_start END,
       previous_start = CASE WHEN previous_start > :latest THEN :now ELSE previous_start END
 WHERE key = :key AND (:shard IS NULL OR shard = :shard)
   AND (high_water > :latest OR last_start > :latest OR previous_start > :latest)

-- name: forget
UPDATE job_key
   SET schedule = NULL, zone = NULL, expected_shards = NULL, starting_deadline = NULL, expected_since = NULL,
       forgotten_at = :now, forgotten_by = :author
 WHERE key = :key

-- name: forget_host
DELETE FROM key_host WHERE host = :host

-- name: put_request
-- In place of an earlier one; it has to be delivered again.
UPDATE lease
   SET request = :kind, requested_by = :author, request_signal = :signal, request_grace = :grace, request_acknowledged_at = NULL
 WHERE key = :key AND shard = :shard AND execution_id = :execution_id

-- name: note_requester
UPDATE job_execution SET request = :kind, requested_by = :author WHERE execution_id = :execution_id

-- name: parts_with_names
-- The keys with named ticks, for retention.
SELECT DISTINCT key, shard FROM job_execution WHERE named = 1
