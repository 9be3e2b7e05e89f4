-- What an operation follows from: the status_ref of the one whose end enqueued it.
ALTER TABLE outbox_operation ADD COLUMN parent TEXT CHECK (parent IS NULL OR length(parent) = 36);
CREATE INDEX outbox_operation_parent ON outbox_operation (parent) WHERE parent IS NOT NULL;
ALTER TABLE outbox_refused ADD COLUMN parent TEXT;

-- A conversation of one tenant and subject. Its turns count from 1 and none comes
-- twice; rows are never removed, so that a name is never given a second time.
CREATE TABLE outbox_session (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id  TEXT    NOT NULL,
  subject_id TEXT    NOT NULL,
  session_id TEXT    NOT NULL,
  turn       INTEGER NOT NULL CHECK (turn >= 1),
  opened_at  INTEGER NOT NULL,
  UNIQUE (tenant_id, subject_id, session_id)
) STRICT;

-- first_row and last_row are the last rows of outbox_history when the turn's
-- foreground was opened and closed: what was written to it lies between them.
CREATE TABLE outbox_turn (
  session   INTEGER NOT NULL REFERENCES outbox_session (id),
  turn      INTEGER NOT NULL CHECK (turn >= 1),
  opened_at INTEGER NOT NULL,
  first_row INTEGER NOT NULL,
  closed_at INTEGER,
  last_row  INTEGER,
  ended     TEXT CHECK (ended IS NULL OR ended = 'next' OR ended = 'interrupted' OR ended = 'stopped'),
  PRIMARY KEY (session, turn),
  CHECK ((closed_at IS NULL) = (last_row IS NULL) AND (closed_at IS NULL) = (ended IS NULL))
) STRICT, WITHOUT ROWID;

-- Every decision about a result: where it came from, where it went, and what was
-- the current turn then. Append-only. A row without a target is set aside.
CREATE TABLE outbox_history (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  session        INTEGER NOT NULL REFERENCES outbox_session (id),
  event          TEXT    NOT NULL,
  decision       TEXT    NOT NULL CHECK (decision = 'written' OR decision = 'quarantined' OR decision = 'fetched'),
  source_turn    INTEGER NOT NULL,
  target_turn    INTEGER,
  current_turn   INTEGER NOT NULL,
  source_open    INTEGER NOT NULL CHECK (source_open = 0 OR source_open = 1),
  status_ref     TEXT    NOT NULL,
  tool_name      TEXT    NOT NULL,
  state          TEXT    NOT NULL,
  reason         TEXT,
  result         TEXT,
  content_sha256 BLOB    NOT NULL CHECK (length(content_sha256) = 32),
  fetched_from   INTEGER,
  fetched_by     INTEGER,
  note           TEXT,
  at             INTEGER NOT NULL,
  UNIQUE (session, event),
  CHECK (CASE decision
    WHEN 'written'     THEN target_turn IS NOT NULL AND target_turn = source_turn AND current_turn = source_turn AND source_open = 1
    WHEN 'quarantined' THEN target_turn IS NULL AND (current_turn <> source_turn OR source_open = 0)
    ELSE target_turn IS NOT NULL AND fetched_from IS NOT NULL AND fetched_by IS NOT NULL AND note IS NOT NULL END)
) STRICT;
CREATE INDEX outbox_history_session ON outbox_history (session, id);
