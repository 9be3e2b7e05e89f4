-- What a person decided about an entry. Append-only.
CREATE TABLE outbox_review (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  operation_id INTEGER NOT NULL REFERENCES outbox_operation (id),
  action       TEXT    NOT NULL CHECK (action = 'retry' OR action = 'resolve_applied' OR action = 'resolve_not_applied'
                                       OR action = 'discard' OR action = 'cancel' OR action = 'approve' OR action = 'refuse'),
  uid          INTEGER NOT NULL,
  by_note      TEXT    NOT NULL DEFAULT '',
  reason       TEXT    NOT NULL CHECK (reason <> ''),
  evidence     TEXT,
  revisions    TEXT,
  state_before TEXT    NOT NULL,
  state_after  TEXT    NOT NULL,
  round        INTEGER NOT NULL,
  at           INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_review_operation ON outbox_review (operation_id, id);

-- What is left of an operation after a purge: that the key was used, and for what.
CREATE TABLE outbox_tombstone (
  tenant_id       TEXT    NOT NULL,
  subject_id      TEXT    NOT NULL,
  tool_name       TEXT    NOT NULL,
  idempotency_key TEXT    NOT NULL,
  status_ref      TEXT    NOT NULL,
  request_sha256  BLOB    NOT NULL CHECK (length(request_sha256) = 32),
  state           TEXT    NOT NULL CHECK (state = 'delivered' OR state = 'discarded'),
  purged_at       INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, subject_id, tool_name, idempotency_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_tombstone_age ON outbox_tombstone (purged_at);
