-- When this file was put back from a backup, Unix milliseconds: what was live in
-- it may have been sent since the backup was made.
ALTER TABLE outbox_meta ADD COLUMN restored_at INTEGER;
