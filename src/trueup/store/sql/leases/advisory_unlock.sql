-- Gives an advisory lock back. Closing the connection would do it too, but a moment later than whoever waits for it is told.
select pg_advisory_unlock(%(key)s::bigint) where pg_backend_pid() = %(backend)s;
