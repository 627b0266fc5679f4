-- A session-level advisory lock on a connection of its own, without waiting.
select pg_try_advisory_lock(%(key)s::bigint);
