-- Whether another session has locked a table, or a partition of it, against writes, or waits to: no write to it can begin then.
select exists (
  select from pg_locks as l
   where l.locktype = 'relation' and l.database = (select d.oid from pg_database as d where d.datname = current_database())
     and (l.relation = %(table)s::oid or l.relation in (select p.relid::oid from pg_partition_tree(%(table)s::oid) as p))
     and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') and l.pid is distinct from pg_backend_pid());
