-- What channels of `oncecron notify` were notified of.

-- name: notices
-- A document that is longer than any that is written counts as empty: it is written anew.
SELECT channel, version, CASE WHEN length(CAST(document AS BLOB)) <= :longest THEN document ELSE '' END
  FROM notice WHERE channel IN (SELECT value FROM json_each(:channels))

-- name: other_notices
SELECT count(*) FROM notice WHERE channel NOT IN (SELECT value FROM json_each(:channels))

-- name: remove_other_notices
DELETE FROM notice WHERE channel NOT IN (SELECT value FROM json_each(:channels))

-- name: make_notice
-- Nothing, if the channel has one.
INSERT INTO notice (channel, version, document) VALUES (:channel, 1, :document) ON CONFLICT (channel) DO NOTHING

-- name: change_notice
-- Nothing, if another version was written meanwhile.
UPDATE notice SET version = version + 1, document = :document WHERE channel = :channel AND version = :version
