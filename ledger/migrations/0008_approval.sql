-- Approvals that were given, each consumed by the one operation that it was given for.
CREATE TABLE outbox_approval (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  operation_id    INTEGER NOT NULL REFERENCES outbox_operation (id),
  approval_id     TEXT    NOT NULL UNIQUE,
  approver        TEXT    NOT NULL,
  approved_at     INTEGER NOT NULL,
  expires_at      INTEGER,
  approval_sha256 BLOB    NOT NULL CHECK (length(approval_sha256) = 32),
  consumed_at     INTEGER NOT NULL,
  CHECK (expires_at IS NULL OR approved_at < expires_at)
) STRICT;
CREATE INDEX outbox_approval_operation ON outbox_approval (operation_id, id);
