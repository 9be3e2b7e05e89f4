-- Whether the file was created for processes that are made to break. Never set later.
ALTER TABLE outbox_meta ADD COLUMN for_chaos INTEGER NOT NULL DEFAULT 0 CHECK (for_chaos IN (0, 1));
