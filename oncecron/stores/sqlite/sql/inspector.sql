-- The queries of the commands for people.

-- name: traced_columns
{execution_columns}, tick_instant, fired_at, lost_at

-- name: execution_columns
execution_id, key, shard, tick, attempt, outcome, exit_code, signal, host, pid, user, command,
       started_at, finished_at, duration, fencing_token, owner, note, shards, cause, lost_reason, request, requested_by

-- name: execution_filters
(:since IS NULL OR started_at >= :since) AND (:host IS NULL OR host = :host)
   AND (:outcome IS NULL OR outcome = :outcome)

-- name: history
-- Newest first, any key; with the instant of the tick and the time of the loss.
SELECT {traced_columns}
  FROM job_execution
 WHERE {execution_filters} AND (:tick IS NULL OR tick = :tick)
 ORDER BY execution_id DESC
 LIMIT :limit

-- name: history_of_key
-- The same by the index of the key.
SELECT {traced_columns}
  FROM job_execution
 WHERE key = :key AND {execution_filters}
 ORDER BY execution_id DESC
 LIMIT :limit

-- name: history_of_tick
-- The same by the index that counts a tick's attempts.
SELECT {traced_columns}
  FROM job_execution
 WHERE key = :key AND tick = :tick AND {execution_filters}
 ORDER BY execution_id DESC
 LIMIT :limit

-- name: history_after
-- Executions after a given one, oldest first.
SELECT {traced_columns}
  FROM job_execution
 WHERE execution_id > :after_id AND (:key IS NULL OR key = :key)
   AND {execution_filters} AND (:tick IS NULL OR tick = :tick)
 ORDER BY execution_id
 LIMIT :limit

-- name: dead_letters
-- Failed for good: all retries failed, or the owner gave up. It is computed: the last attempt of its tick that started, or
-- without a tick the last one of its owner, and no lease is left for a retry.
SELECT {traced_columns}
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
 LIMIT :limit

-- name: execution
SELECT {execution_columns}
  FROM job_execution
 WHERE execution_id = :execution_id

-- name: output
SELECT output AS text, output_cut AS cut FROM job_execution WHERE execution_id = :execution_id AND output IS NOT NULL

-- name: skips
SELECT key, shard, nullif(tick, '') AS tick, reason, holder_host, holder_pid, host, pid, at, count, detail
  FROM skip
 WHERE (:key IS NULL OR key = :key)
   AND (:since IS NULL OR at >= :since) AND (:host IS NULL OR host = :host)
   AND (:outcome IS NULL OR reason = :outcome) AND (:tick IS NULL OR tick = :tick)
 ORDER BY at DESC, key, shard, host, reason
 LIMIT :limit

-- name: plain_skips
-- The rows that may have such skips; `window` and `limit` as in the query for the others.
SELECT key, shard, host, window, words
  FROM plain_skips
 WHERE (:key IS NULL OR key = :key)
   AND (:since IS NULL OR at >= :since) AND (:host IS NULL OR host = :host)
   AND (:oldest IS NULL OR window >= :oldest) AND (:newest IS NULL OR window <= :newest)
 ORDER BY key, shard, window, host

-- name: holder
SELECT host, pid, outcome FROM job_execution WHERE execution_id = :execution_id

-- name: reasons
-- Of ticks of a key no earlier than one, by the primary key.
SELECT key, tick, host, reason
  FROM skip
 WHERE key = :key AND tick >= :tick

-- name: timeline
-- All executions since a time, part by part in the order of starts; sorted on disk if needed.
SELECT {traced_columns}
  FROM job_execution
 WHERE :since IS NULL OR started_at >= :since
 ORDER BY key, shard, started_at, execution_id

-- name: keys
SELECT key, shard, schedule, zone, expected_shards, starting_deadline, expected_since, high_water, last_start, forgotten_at
  FROM job_key ORDER BY key, shard

-- name: key_hosts
SELECT key, shard, host, seen_at, version, 0.0, ticks, ticks_at, schedule, zone, command, wins, skips, twice, hour
  FROM key_host ORDER BY key, shard, host

-- name: host_ticks
SELECT key, host, seen_at, 0.0, ticks, ticks_at, twice
  FROM key_host ORDER BY key, host

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
 ORDER BY l.key, l.shard

-- name: pauses
-- Those that have not ended; the pause of all keys first, drained hosts last.
SELECT key, NULL AS host, author, reason, at AS since, until
  FROM pause WHERE until IS NULL OR until > :now
 UNION ALL
SELECT NULL, host, author, NULL, at, NULL FROM drain
 ORDER BY host, key

-- name: put_pause
INSERT INTO pause (key, until, reason, author, at) VALUES (:key, :until, :reason, :author, :since)
    ON CONFLICT (key) DO UPDATE
   SET until = excluded.until, reason = excluded.reason, author = excluded.author, at = excluded.at

-- name: take_pause
DELETE FROM pause WHERE key = :key

-- name: put_drain
INSERT INTO drain (host, author, at) VALUES (:host, :author, :since)
    ON CONFLICT (host) DO UPDATE SET author = excluded.author, at = excluded.at

-- name: take_drain
DELETE FROM drain WHERE host = :host

-- name: notices
-- A document that is longer than any that is written counts as empty: it is written anew.
SELECT channel, version, CASE WHEN length(CAST(document AS BLOB)) <= :most THEN document ELSE '' END
  FROM notice WHERE channel IN (SELECT value FROM json_each(:channels)) ORDER BY channel

-- name: count_other_notices
SELECT count(*) FROM notice WHERE channel NOT IN (SELECT value FROM json_each(:channels))

-- name: remove_other_notices
DELETE FROM notice WHERE channel NOT IN (SELECT value FROM json_each(:channels))

-- name: make_notice
-- Nothing, if the channel has one.
INSERT INTO notice (channel, version, document) VALUES (:channel, 1, :document) ON CONFLICT (channel) DO NOTHING

-- name: change_notice
-- Nothing, if another version was written meanwhile.
UPDATE notice SET version = version + 1, document = :document WHERE channel = :channel AND version = :version

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
       forgotten_at = :now
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
