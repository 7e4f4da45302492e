-- The statements of a firing. `:boot` and `:lease_now` are this machine's lease clock, `:now` its wall clock. What a look
-- reads has the names of oncecron.core.facts.

-- name: find_own
-- The newest execution of this firing for this shard of the key: is this a repeated claim?
SELECT e.execution_id AS own_execution_id, e.attempt AS own_attempt, e.outcome AS own_outcome, e.retrying AS own_retrying,
       e.requested_by AS own_requested_by, e.started_at AS own_started_at, e.host AS own_host, e.pid AS own_pid, e.user AS own_user,
       e.fencing_token AS own_fencing_token, e.cause AS own_cause, e.place AS own_place,
       EXISTS (SELECT 1 FROM lease l
                WHERE l.key = e.key AND l.shard = e.shard AND l.execution_id = e.execution_id AND l.owner = e.owner) AS own_has_lease
  FROM job_execution e
 WHERE e.owner = :owner AND e.key = :key AND e.shard = :shard
 ORDER BY e.owner_attempt DESC
 LIMIT 1

-- name: register_key
INSERT INTO job_key (key, shard) VALUES (:key, :shard) ON CONFLICT DO NOTHING

-- name: find_key
-- With the host of the last start; unknown if it was taken back or recorded later.
SELECT k.fence, k.high_water, k.last_start, k.last_lateness, e.host AS last_host, e.pid AS last_pid, e.user AS last_user,
       EXISTS (SELECT 1 FROM job_execution
                WHERE key = :key AND shard = :shard AND outcome = 'running') AS running
  FROM job_key k LEFT JOIN job_execution e ON e.execution_id = k.last_execution_id
 WHERE k.key = :key AND k.shard = :shard

-- name: find_marks
SELECT fence, high_water FROM job_key WHERE key = :key AND shard = :shard

-- name: find_stop
-- The key's own pause, else that of all keys, else the drain of the host. What oncecron runs for itself tells people of the last
-- two: its own pause alone.
SELECT kind AS stop_kind, author AS stop_author, reason AS stop_reason, at AS stop_since
  FROM pause
 WHERE (kind, name) IN (VALUES ('key', :key), ('key', '*'), ('host', :host)) AND (until IS NULL OR until > :now)
   AND (kind = 'key' AND name = :key OR :key NOT LIKE 'oncecron/%')
 ORDER BY kind = 'host', name = '*'
 LIMIT 1

-- name: look_back
-- What is known of the time since an instant; see core/making_up.py.
SELECT 'plan', schedule, zone, expected_since, NULL FROM job_key WHERE key = :key AND shard = :shard AND schedule IS NOT NULL
UNION ALL
SELECT CASE kind WHEN 'key' THEN 'pause' ELSE 'drain' END, name, past, at, until
  FROM pause
 WHERE (kind, name) IN (VALUES ('key', :key), ('key', '*')) OR kind = 'host'
   AND name IN (SELECT host FROM key_host WHERE key = :key AND shard = :shard)
UNION ALL
SELECT 'host', host, NULL, NULL, NULL FROM key_host WHERE key = :key AND shard = :shard
UNION ALL
SELECT reason, tick, host, NULL, NULL
  FROM skip WHERE key = :key AND shard = :shard AND reason IN ('paused', 'drained') AND tick > :tick_since
UNION ALL
SELECT 'run', NULL, NULL, started_at, finished_at
  FROM (SELECT * FROM job_execution WHERE key = :key AND shard = :shard ORDER BY execution_id DESC LIMIT 100)
 WHERE finished_at > :since AND outcome NOT IN ('not-started', 'unclaimed')

-- name: find_other_shards
SELECT shards AS other_shards FROM job_execution WHERE key = :key AND tick = :tick AND shards <> :shards LIMIT 1

-- name: find_lease
-- The lease with its execution. One of another boot has expired.
SELECT l.execution_id AS lease_execution_id, l.ttl AS lease_ttl,
       CASE WHEN l.boot = :boot THEN l.expires_on_lease_clock ELSE 0 END AS lease_expires_at,
       l.heartbeat_on_lease_clock AS lease_heartbeat_at,
       e.tick AS lease_tick, e.host AS lease_host, e.pid AS lease_pid, e.user AS lease_user, e.started_at AS lease_started_at
  FROM lease l JOIN job_execution e USING (execution_id)
 WHERE l.key = :key AND l.shard = :shard

-- name: cut_lease
-- It ends later than any renewal can have set it: the clock was set back.
UPDATE lease
   SET expires_on_lease_clock = :lease_now + ttl, heartbeat_on_lease_clock = min(heartbeat_on_lease_clock, :lease_now),
       expires_at = :now + ttl, heartbeat_at = min(heartbeat_at, :now)
 WHERE key = :key AND shard = :shard AND boot = :boot AND expires_on_lease_clock > :lease_now + ttl

-- name: find_newest
-- The newest attempt of a tick that may have started, else the newest; and whether there were more than there are.
SELECT e.execution_id AS newest_execution_id, e.attempt AS newest_attempt, e.outcome AS newest_outcome,
       e.retrying AS newest_retrying, e.requested_by AS newest_requested_by, e.started_at AS newest_started_at,
       e.host AS newest_host, e.pid AS newest_pid, e.user AS newest_user, t.attempts, t.attempts > t.kept AS forgotten
  FROM job_execution e,
       (SELECT count(*) AS kept, max(attempt) AS attempts FROM job_execution
         WHERE key = :key AND tick = :tick AND shard = :shard) t
 WHERE key = :key AND tick = :tick AND shard = :shard
 ORDER BY e.outcome = 'not-started', e.attempt DESC
 LIMIT 1

-- name: find_awaited
-- The newest execution without a tick since the awaited one that may have started, else the newest.
SELECT execution_id AS newest_execution_id, attempt AS newest_attempt, outcome AS newest_outcome, retrying AS newest_retrying,
       requested_by AS newest_requested_by, started_at AS newest_started_at, host AS newest_host, pid AS newest_pid,
       user AS newest_user
  FROM job_execution
 WHERE key = :key AND shard = :shard AND tick IS NULL AND execution_id >= :awaited
   AND EXISTS (SELECT 1 FROM job_execution WHERE execution_id = :awaited AND tick IS NULL)
 ORDER BY outcome = 'not-started', execution_id DESC
 LIMIT 1

-- name: next_attempt
SELECT coalesce(max(attempt), 0) + 1 FROM job_execution WHERE key = :key AND tick = :tick AND shard = :shard

-- name: declare_lost
-- Compare-and-set: still running, without a valid lease.
UPDATE job_execution
   SET outcome = 'lost', lost_at = :now, lost_reason = :lost_reason, note = coalesce(note || '; ', '') || :note
 WHERE key = :key AND shard = :shard AND outcome = 'running'
   AND NOT EXISTS (SELECT 1 FROM lease l
                    WHERE l.execution_id = job_execution.execution_id
                      AND l.boot = :boot AND l.expires_on_lease_clock > :lease_now)

-- name: lose_kept
-- The same for an attempt whose retry was to follow: its end is on record.
UPDATE job_execution
   SET lost_at = :now, lost_reason = :lost_reason, note = coalesce(note || '; ', '') || :note
 WHERE retrying = 1 AND lost_at IS NULL
   AND execution_id = (SELECT execution_id FROM lease
                        WHERE key = :key AND shard = :shard AND (boot <> :boot OR expires_on_lease_clock <= :lease_now))

-- name: find_lost
-- What was declared lost right now.
SELECT execution_id, owner, tick, attempt, cause, outcome, exit_code, signal, lost_reason, requested_by, host, pid, user,
       started_at, duration, note, shards
  FROM job_execution
 WHERE key = :key AND shard = :shard AND lost_at = :now

-- name: take_lease_away
DELETE FROM lease
 WHERE key = :key AND shard = :shard AND (boot <> :boot OR expires_on_lease_clock <= :lease_now)

-- name: raise_fence
UPDATE job_key SET fence = max(fence + 1, :microseconds) WHERE key = :key AND shard = :shard

-- name: insert_execution
INSERT INTO job_execution
       (key, shard, tick, tick_instant, named, attempt, owner_attempt, outcome, host, pid, user, command,
        fired_at, started_at, fencing_token, owner, cause, shards, retries, place)
VALUES (:key, :shard, :tick, :tick_instant, :named, :attempt, :attempt, 'running', :host, :pid, :user, :command,
        :fired_at, :now, :fencing_token, :owner, :cause, :shards, :retries, :place)

-- name: find_place
SELECT place FROM job_execution WHERE execution_id = :execution_id

-- name: put_place
UPDATE job_execution SET place = :place WHERE execution_id = :execution_id

-- name: insert_lease
INSERT INTO lease
       (key, shard, execution_id, owner, ttl, boot, heartbeat_on_lease_clock, expires_on_lease_clock,
        acquired_at, heartbeat_at, expires_at)
VALUES (:key, :shard, :execution_id, :owner, :ttl, :boot, :lease_now, :lease_now + :ttl,
        :now, :now, :now + :ttl)

-- name: mark_key
-- What a grant writes on the key: its token, the high-water mark, the start, and how it was claimed.
UPDATE job_key
   SET fence = :fencing_token, high_water = :mark,
       last_execution_id = :execution_id, last_start = :now, last_lateness = :lateness,
       previous_start = last_start, previous_lateness = last_lateness,
       schedule = coalesce(:schedule, schedule),
       zone = CASE WHEN :schedule IS NULL THEN zone ELSE :zone END,
       expected_shards = CASE WHEN :schedule IS NULL THEN expected_shards ELSE :shards END,
       starting_deadline = CASE WHEN :schedule IS NULL THEN starting_deadline ELSE :starting_deadline END,
       expected_since = CASE WHEN :schedule IS NULL
                               OR schedule IS :schedule AND zone IS :zone AND expected_shards IS :shards
                                  AND expected_since <= :latest
                             THEN expected_since ELSE :now END
 WHERE key = :key AND shard = :shard

-- name: renew_lease
-- Compare-and-set. It sets the expiry, even if the old one was later.
UPDATE lease
   SET boot = :boot, heartbeat_on_lease_clock = :lease_now, expires_on_lease_clock = :lease_now + ttl,
       heartbeat_at = :now, expires_at = :now + ttl
 WHERE key = :key AND shard = :shard AND execution_id = :execution_id AND owner = :owner

-- name: hear_request
-- The answer to the renewal has the request.
UPDATE lease SET request_acknowledged_at = coalesce(request_acknowledged_at, :now) WHERE key = :key AND shard = :shard

-- name: find_request
SELECT request, requested_by, request_signal, request_grace
  FROM lease
 WHERE key = :key AND shard = :shard AND request IS NOT NULL

-- name: keep_execution
UPDATE job_execution
   SET outcome = :outcome, exit_code = :exit_code, signal = :signal, duration = :duration, finished_at = :finished_at,
       note = :note, output = :output, output_cut = :output_cut, place = coalesce(:place, place), retrying = 1
 WHERE execution_id = :execution_id AND outcome = 'running'

-- name: find_kept
-- The attempt under the owner's lease: the one that it kept, or one that was begun since.
SELECT e.execution_id, e.tick, e.attempt, e.cause, e.outcome, e.fencing_token, e.started_at, e.host, e.pid, e.place
  FROM lease l JOIN job_execution e USING (execution_id)
 WHERE l.key = :key AND l.shard = :shard AND l.owner = :owner
   AND (e.retrying = 1 OR l.execution_id > :execution_id)

-- name: insert_next_attempt
-- Of the same firing as the attempt before.
INSERT INTO job_execution
       (key, shard, tick, tick_instant, named, attempt, owner_attempt, outcome, host, pid, user, command,
        fired_at, started_at, fencing_token, owner, cause, shards, retries, place)
SELECT key, shard, tick, tick_instant, named, :attempt, :attempt, 'running', host, pid, user, command,
       fired_at, :now, :fencing_token, owner, :cause, shards, retries, place
  FROM job_execution
 WHERE execution_id = :execution_id

-- name: move_lease
-- To the next attempt. A request was for the attempt before.
UPDATE lease
   SET execution_id = :next_id, boot = :boot, heartbeat_on_lease_clock = :lease_now,
       expires_on_lease_clock = :lease_now + ttl, heartbeat_at = :now, expires_at = :now + ttl,
       request = NULL, requested_by = NULL, request_signal = NULL, request_grace = NULL, request_acknowledged_at = NULL
 WHERE key = :key AND shard = :shard AND execution_id = :execution_id AND owner = :owner

-- name: mark_next_attempt
-- Its token and its start; the lateness of the firing in its minute stays.
UPDATE job_key
   SET fence = :fencing_token, last_execution_id = :next_id, last_start = :now,
       previous_start = last_start, previous_lateness = last_lateness
 WHERE key = :key AND shard = :shard

-- name: find_own_lease
-- The execution that has the owner's lease.
SELECT e.execution_id, e.outcome, e.duration, e.retrying, e.lost_at, e.note
  FROM lease l JOIN job_execution e USING (execution_id)
 WHERE l.key = :key AND l.shard = :shard AND l.owner = :owner

-- name: give_up
UPDATE job_execution SET retrying = 0, note = :note WHERE execution_id = :execution_id

-- name: release_lease
DELETE FROM lease WHERE key = :key AND shard = :shard AND execution_id = :execution_id AND owner = :owner

-- name: find_ending
SELECT execution_id, outcome, duration, retrying, lost_at, note FROM job_execution
 WHERE execution_id = :execution_id AND owner = :owner AND key = :key AND shard = :shard

-- name: end_execution
UPDATE job_execution
   SET outcome = :outcome, exit_code = :exit_code, signal = :signal, duration = :duration,
       finished_at = :finished_at, note = :note, output = :output, output_cut = :output_cut, place = coalesce(:place, place),
       lost_reason = coalesce(:lost_reason, lost_reason),
       request = coalesce(:request, request), requested_by = coalesce(:requested_by, requested_by)
 WHERE execution_id = :execution_id

-- name: take_back_start
-- Take back a start that did not happen, so that `recent` ignores it.
UPDATE job_key SET last_start = previous_start, last_lateness = previous_lateness, last_execution_id = NULL
 WHERE key = :key AND shard = :shard AND last_execution_id = :execution_id

-- name: count_skip
INSERT INTO skip (key, shard, tick, host, reason, pid, holder_host, holder_pid, at, count, detail)
VALUES (:key, :shard, coalesce(:tick, ''), :host, :reason, :pid, :holder_host, :holder_pid, :at, 1, :detail)
ON CONFLICT (key, tick, shard, host, reason) DO UPDATE
   SET count = count + 1, pid = excluded.pid, holder_host = excluded.holder_host,
       holder_pid = excluded.holder_pid, detail = excluded.detail, at = max(at, excluded.at)

-- name: add_plain_skip
INSERT INTO plain_skips (key, shard, window, host, words, at) VALUES (:key, :shard, :window, :host, :word, :at)
ON CONFLICT (key, shard, window, host) DO UPDATE SET words = words || excluded.words, at = max(at, excluded.at)

-- name: find_key_host
SELECT presence FROM key_host WHERE key = :key AND shard = :shard AND host = :host

-- name: put_key_host
INSERT OR REPLACE INTO key_host (key, shard, host, seen_at, presence) VALUES (:key, :shard, :host, :now, :presence)

-- name: deliver_skip
-- Identified by its firing's owner, of 36 characters.
INSERT INTO skip (key, shard, tick, host, reason, pid, holder_host, holder_pid, at, count, detail, delivered)
VALUES (:key, :shard, coalesce(:tick, ''), :host, :reason, :pid, :holder_host, :holder_pid, :at, :count, :detail, :owner)
ON CONFLICT (key, tick, shard, host, reason) DO UPDATE
   SET count = min(count + excluded.count, 9007199254740991), pid = excluded.pid, holder_host = excluded.holder_host,
       holder_pid = excluded.holder_pid, detail = excluded.detail, at = max(at, excluded.at),
       delivered = substr(coalesce(delivered || ' ', '') || excluded.delivered, 1 - 8 * 37)
 WHERE coalesce(instr(delivered, excluded.delivered), 0) = 0

-- name: find_delivered
-- An owner that gave up without a number means its newest.
SELECT execution_id, outcome, duration, retrying, lost_at, note FROM job_execution
 WHERE owner = :owner AND key = :key AND shard = :shard AND owner_attempt = coalesce(:attempt, owner_attempt)
 ORDER BY owner_attempt DESC
 LIMIT 1

-- name: insert_delivered
INSERT INTO job_execution
       (key, shard, tick, tick_instant, named, attempt, owner_attempt, outcome, exit_code, signal, host, pid, user,
        command, fired_at, started_at, finished_at, duration, fencing_token, owner, cause, lost_reason, request, requested_by, note,
        shards, retries, output, output_cut, place)
SELECT :key, :shard, :tick, :tick_instant, :named,
       max(:attempt, (SELECT coalesce(max(attempt) + 1, 1) FROM job_execution
                       WHERE key = :key AND tick = :tick AND shard = :shard)),
       :attempt, :outcome, :exit_code, :signal, :host, :pid, :user,
       :command, :fired_at, :started_at, :finished_at, :duration, :fencing_token, :owner, :cause, :lost_reason, :request, :requested_by,
       :note, :shards, :retries, :output, :output_cut, :place

-- name: declare_unanswered_lost
-- A later start has the key, and these have no lease here.
UPDATE job_execution
   SET outcome = 'lost', lost_at = :now, lost_reason = 'superseded', note = coalesce(note || '; ', '') || :unfinished
 WHERE key = :key AND shard = :shard AND outcome = 'running'
   AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.execution_id = job_execution.execution_id)

-- name: find_running_or_leased
SELECT 1 FROM job_execution WHERE key = :key AND shard = :shard AND outcome = 'running'
UNION ALL
SELECT 1 FROM lease WHERE key = :key AND shard = :shard

-- name: mark_delivered
UPDATE job_key SET fence = max(fence, min(coalesce(:fencing_token, 0), :most_believable)) WHERE key = :key AND shard = :shard

-- name: mark_delivered_tick
UPDATE job_key SET high_water = :mark WHERE key = :key AND shard = :shard

-- name: mark_delivered_start
UPDATE job_key
   SET last_execution_id = NULL, last_start = :last_start, last_lateness = :lateness
 WHERE key = :key AND shard = :shard AND (last_start IS NULL OR last_start < :last_start OR last_start > :latest)
