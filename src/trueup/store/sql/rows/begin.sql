-- Begins a handler's transaction that has its row locked. The server ends it when its client falls silent for longer than the lease.
-- Two statements in one message; not in a pipeline, where the server does not always watch for silence.
begin; set local idle_in_transaction_session_timeout = {milliseconds};
