-- Begins a handler's transaction that has its row locked: sent together with rows/lock.sql. The server ends it when its client falls
-- silent for longer than the lease.
begin; set local idle_in_transaction_session_timeout = {milliseconds};
