-- Releases an advisory lock. Closing the connection would release it too, but only after the caller has reported it as free.
select pg_advisory_unlock(%(key)s::bigint) where pg_backend_pid() = %(backend)s;
