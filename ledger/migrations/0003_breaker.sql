-- Until when a tool's breaker is open: what a restart must not forget. NULL: closed.
ALTER TABLE outbox_tool ADD COLUMN breaker_until INTEGER;
