-- The tables of items.

-- name: item_list
-- The items of a tick, in the order of the list. Positions above `total` belong to a load that has not ended: nobody sees them.
CREATE TABLE item_list (
  list_id           INTEGER PRIMARY KEY AUTOINCREMENT,
  key               TEXT    NOT NULL,
  tick              TEXT,                        -- null: retention is removing it
  total             INTEGER NOT NULL DEFAULT 0,
  next              INTEGER NOT NULL DEFAULT 1,  -- the next position that a slot draws
  loaded_at         REAL,                        -- when the last load ended; null: none has
  keep              REAL    NOT NULL DEFAULT 0,  -- how long after that it stays at least
  loading_execution INTEGER,                     -- the last load: its execution, its last step, and what it has added
  loading_number    INTEGER NOT NULL DEFAULT -1,
  loading_from      INTEGER NOT NULL DEFAULT 0,
  loading_until     INTEGER NOT NULL DEFAULT 0,
  loading_known     INTEGER NOT NULL DEFAULT 0,
  loading_repeated  INTEGER NOT NULL DEFAULT 0,
  UNIQUE (key, tick)
)

-- name: item
CREATE TABLE item (
  list_id  INTEGER NOT NULL,
  position INTEGER NOT NULL,
  item_id  BLOB    NOT NULL,
  identity TEXT    NOT NULL,
  payload  TEXT,                                 -- null: the identity
  PRIMARY KEY (list_id, position)
) WITHOUT ROWID

-- name: one_item
CREATE UNIQUE INDEX item_identity ON item (list_id, item_id)

-- name: item_slot
-- A slot of a list: the execution that drew last, the number of its last batch, and that batch as long as it is not settled.
-- The part of a batch that was drawn before is in item_mark.
CREATE TABLE item_slot (
  list_id      INTEGER NOT NULL,
  shard        INTEGER NOT NULL,
  execution_id INTEGER NOT NULL,
  number       INTEGER NOT NULL DEFAULT 0,
  first        INTEGER,
  size         INTEGER,
  taken_at     REAL,
  PRIMARY KEY (list_id, shard),
  CHECK ((first IS NULL) = (size IS NULL))
) WITHOUT ROWID

-- name: item_batch
-- The batches that were settled: who drew an item first, and when.
CREATE TABLE item_batch (
  list_id      INTEGER NOT NULL,
  first        INTEGER NOT NULL,
  size         INTEGER NOT NULL,
  execution_id INTEGER NOT NULL,
  taken_at     REAL    NOT NULL,
  settled_at   REAL    NOT NULL,
  PRIMARY KEY (list_id, first)
) WITHOUT ROWID

-- name: item_mark
-- The items that are neither queued nor done at the first attempt.
CREATE TABLE item_mark (
  list_id      INTEGER NOT NULL,
  position     INTEGER NOT NULL,
  state        TEXT    NOT NULL CHECK (state IN ('queued', 'taken', 'done', 'failed', 'lost', 'dead')),
  attempts     INTEGER NOT NULL,
  not_before   REAL,                             -- queued and failed: when it may be drawn
  shard        INTEGER,                          -- the slot and the execution that drew it last
  execution_id INTEGER,
  changed_at   REAL    NOT NULL,
  reason       TEXT,
  PRIMARY KEY (list_id, position),
  CHECK ((state IN ('queued', 'failed')) = (not_before IS NOT NULL))
) WITHOUT ROWID

-- name: marks_due
CREATE INDEX item_mark_due ON item_mark (list_id, not_before) WHERE state IN ('queued', 'failed')

-- name: marks_by_state
CREATE INDEX item_mark_state ON item_mark (list_id, state, execution_id)
