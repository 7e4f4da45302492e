-- name: notice
-- What each channel of `oncecron notify` was notified of.
CREATE TABLE notice (
  channel  TEXT    NOT NULL PRIMARY KEY,
  version  INTEGER NOT NULL,  -- how often it was written
  document TEXT    NOT NULL   -- JSON
) WITHOUT ROWID
