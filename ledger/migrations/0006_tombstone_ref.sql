-- A status_ref whose operation was purged is told from one that never was.
CREATE INDEX outbox_tombstone_ref ON outbox_tombstone (status_ref);
