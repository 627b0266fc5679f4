-- A session-level advisory lock on a connection of its own, without waiting; and which backend holds it.
select pg_try_advisory_lock(%(key)s::bigint), pg_backend_pid();
