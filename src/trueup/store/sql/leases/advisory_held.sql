-- Is this session still the one that took the lock, and has it still? A pooler in transaction mode would have switched it.
select pg_backend_pid() = %(backend)s and exists (
  select from pg_locks
   where locktype = 'advisory' and pid = pg_backend_pid() and granted
     and ((classid::bigint << 32) | objid::bigint) = %(key)s::bigint and objsubid = 1);
