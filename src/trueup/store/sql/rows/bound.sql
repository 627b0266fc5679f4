-- Bounds a handler's transaction that has its row locked: the server ends it when its client sends nothing for longer than the lease.
set local idle_in_transaction_session_timeout = {milliseconds};
