-- No IN with three values or more in a CHECK or a partial index: SQLite builds a
-- temporary table for it at every statement.

CREATE TABLE outbox_meta (
  id             INTEGER PRIMARY KEY CHECK (id = 1),
  schema_version INTEGER NOT NULL,
  lineage        TEXT    NOT NULL,
  generation     INTEGER NOT NULL DEFAULT 1,
  boot_epoch     INTEGER NOT NULL DEFAULT 0,
  commits        INTEGER NOT NULL DEFAULT 0,
  committed_by   INTEGER NOT NULL DEFAULT 0,
  last_token     INTEGER NOT NULL DEFAULT 0 CHECK (last_token BETWEEN 0 AND 9007199254740991)
) STRICT;

-- What an application inserts is never converted: a key 7 that became the text
-- '7' (or '7.0', of a language without integers) would be another key than the one
-- meant. Of numbers it is the value that counts, since such a language binds every
-- one as a float. An empty session_id or traceparent is none, as NULL is.
CREATE TABLE outbox_intake (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id       ANY     NOT NULL CONSTRAINT tenant_id_is_text       CHECK (typeof(tenant_id) = 'text'),
  subject_id      ANY     NOT NULL CONSTRAINT subject_id_is_text      CHECK (typeof(subject_id) = 'text'),
  tool_name       ANY     NOT NULL CONSTRAINT tool_name_is_text       CHECK (typeof(tool_name) = 'text'),
  idempotency_key ANY     NOT NULL CONSTRAINT idempotency_key_is_text CHECK (typeof(idempotency_key) = 'text'),
  arguments       ANY     NOT NULL CONSTRAINT arguments_is_text       CHECK (typeof(arguments) = 'text'),
  not_before      ANY     CONSTRAINT not_before_is_an_integer CHECK (not_before IS NULL OR typeof(not_before) = 'integer'
                            OR typeof(not_before) = 'real' AND not_before = CAST(not_before AS INTEGER)),
  session_id      ANY     CONSTRAINT session_id_is_text  CHECK (session_id IS NULL OR typeof(session_id) = 'text'),
  turn            ANY     CONSTRAINT turn_is_an_integer  CHECK (turn IS NULL OR typeof(turn) = 'integer'
                            OR typeof(turn) = 'real' AND turn = CAST(turn AS INTEGER)),
  traceparent     ANY     CONSTRAINT traceparent_is_text CHECK (traceparent IS NULL OR typeof(traceparent) = 'text'),
  parked          INTEGER NOT NULL DEFAULT 0 CHECK (parked IN (0, 1))
) STRICT;
CREATE INDEX outbox_intake_parked ON outbox_intake (parked, id);

CREATE TABLE outbox_refused (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id       TEXT    NOT NULL,
  subject_id      TEXT    NOT NULL,
  tool_name       TEXT    NOT NULL,
  idempotency_key TEXT    NOT NULL,
  arguments       TEXT    NOT NULL,
  not_before      INTEGER,
  session_id      TEXT,
  turn            INTEGER,
  traceparent     TEXT,
  code            TEXT    NOT NULL,
  message         TEXT    NOT NULL,
  refused_at      INTEGER NOT NULL
) STRICT;

CREATE TABLE outbox_operation (
  id                INTEGER PRIMARY KEY AUTOINCREMENT,
  status_ref        TEXT    NOT NULL UNIQUE CHECK (length(status_ref) = 36),
  tenant_id         TEXT    NOT NULL,
  subject_id        TEXT    NOT NULL,
  tool_name         TEXT    NOT NULL,
  idempotency_key   TEXT    NOT NULL,
  arguments         TEXT    NOT NULL,
  request_sha256    BLOB    NOT NULL CHECK (length(request_sha256) = 32),
  effect            TEXT    NOT NULL CHECK (effect = 'idempotent' OR effect = 'queryable' OR effect = 'local' OR effect = 'opaque'),
  wire_key          TEXT    NOT NULL,
  input_revision    TEXT    NOT NULL,
  output_revision   TEXT    NOT NULL,
  effect_revision   TEXT    NOT NULL,
  handler_revision  TEXT    NOT NULL,
  producer_revision TEXT    NOT NULL,
  policy_revision   TEXT    NOT NULL,
  provider          TEXT,
  api_family        TEXT,
  adapter_revision  TEXT,
  response_id       TEXT,
  call_id           TEXT,
  not_before        INTEGER,
  session_id        TEXT,
  turn              INTEGER,
  traceparent       TEXT,
  accepted_at       INTEGER NOT NULL,
  UNIQUE (tenant_id, subject_id, tool_name, idempotency_key)
) STRICT;

CREATE TABLE outbox_entry (
  operation_id   INTEGER PRIMARY KEY REFERENCES outbox_operation (id),
  tool_name      TEXT    NOT NULL,
  state          TEXT    NOT NULL,
  due_at         INTEGER,
  owner          INTEGER,
  token          INTEGER,
  claim_token    INTEGER NOT NULL DEFAULT 0,
  last_sent_at   INTEGER,
  over_at        INTEGER,
  unproven_since INTEGER,
  unproven_by    INTEGER,
  attempts       INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  failures       INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
  lapses         INTEGER NOT NULL DEFAULT 0 CHECK (lapses >= 0),
  queries        INTEGER NOT NULL DEFAULT 0 CHECK (queries >= 0),
  suspect        INTEGER NOT NULL DEFAULT 0 CHECK (suspect IN (0, 1)),
  round          INTEGER NOT NULL DEFAULT 1 CHECK (round >= 1),
  round_at       INTEGER NOT NULL,
  round_excused  INTEGER NOT NULL DEFAULT 0,
  reason         TEXT,
  changed_at     INTEGER NOT NULL,
  CHECK ((owner IS NULL) = (token IS NULL)),
  CHECK ((unproven_since IS NULL) = (unproven_by IS NULL)),
  CHECK (CASE state
    WHEN 'pending' THEN due_at IS NOT NULL AND token IS NULL
    WHEN 'claimed' THEN due_at IS NOT NULL AND token IS NOT NULL AND token = claim_token
    WHEN 'sending' THEN due_at IS NOT NULL AND token IS NOT NULL AND token = claim_token
                        AND unproven_since IS NOT NULL AND last_sent_at IS NOT NULL
    WHEN 'waiting' THEN token IS NULL AND unproven_since IS NULL
    WHEN 'unknown' THEN (token IS NULL OR due_at IS NOT NULL) AND unproven_since IS NOT NULL AND reason IS NOT NULL
    WHEN 'dead'    THEN due_at IS NULL AND token IS NULL AND unproven_since IS NULL AND reason IS NOT NULL
    WHEN 'delivered' THEN due_at IS NULL AND token IS NULL
    WHEN 'discarded' THEN due_at IS NULL AND token IS NULL
    ELSE 0 END)
) STRICT;
CREATE INDEX outbox_entry_due ON outbox_entry (tool_name, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_entry_kept ON outbox_entry (state, operation_id)
  WHERE state = 'waiting' OR state = 'unknown' OR state = 'dead' OR state = 'discarded';

CREATE TABLE outbox_attempt (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  operation_id INTEGER NOT NULL REFERENCES outbox_operation (id),
  attempt      INTEGER NOT NULL,
  round        INTEGER NOT NULL,
  kind         TEXT    NOT NULL CHECK (kind = 'outcome' OR kind = 'lapse' OR kind = 'late' OR kind = 'query' OR kind = 'blocked'),
  token        INTEGER NOT NULL,
  phase        TEXT    NOT NULL,
  class        TEXT    NOT NULL,
  code         TEXT    NOT NULL,
  excerpt      TEXT    NOT NULL DEFAULT '',
  at           INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_attempt_operation ON outbox_attempt (operation_id, id);

CREATE TABLE outbox_receipt (
  operation_id        INTEGER PRIMARY KEY REFERENCES outbox_operation (id),
  result              TEXT,
  result_sha256       BLOB    NOT NULL CHECK (length(result_sha256) = 32),
  call_binding_sha256 BLOB    NOT NULL CHECK (length(call_binding_sha256) = 32),
  reference           TEXT,
  attempt             INTEGER NOT NULL,
  token               INTEGER NOT NULL,
  how                 TEXT    NOT NULL CHECK (how = 'fresh' OR how = 'receipt_reconciled' OR how = 'resolved'),
  at                  INTEGER NOT NULL
) STRICT;

CREATE TABLE outbox_tool (
  tool_name    TEXT    PRIMARY KEY,
  paused       INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  pause_reason TEXT,
  paused_at    INTEGER,
  excused_ms   INTEGER NOT NULL DEFAULT 0,
  CHECK ((paused = 1) = (paused_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
