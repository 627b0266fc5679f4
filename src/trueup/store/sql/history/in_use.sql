-- Whether one of these tables has been in use for longer than housekeeping would wait for it: by a reader of the whole history (a
-- pg_dump), or by a prepared transaction, which has no process.
select exists (
  select from pg_locks as l
    join pg_class as c on c.oid = l.relation
    join pg_namespace as n on n.oid = c.relnamespace
    join pg_database as d on d.oid = l.database
    left join pg_stat_activity as a on a.pid = l.pid
   where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid() and d.datname = current_database()
     and n.nspname = %(schema)s::name and c.relname = any(%(tables)s::name[])
     and (l.pid is null or a.xact_start < clock_timestamp() - make_interval(secs => %(longer_than)s::float8))
);
