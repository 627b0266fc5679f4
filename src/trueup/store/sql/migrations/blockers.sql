-- Sessions that have had a table of the schema locked for longer than a migration waits for it, longest first. A prepared transaction has no
-- process. Of sessions of other roles only the process and the application can be seen.
select l.pid, coalesce(a.application_name, ''), coalesce(a.backend_type, 'prepared transaction'),
       extract(epoch from clock_timestamp() - min(a.xact_start))::float8, extract(epoch from clock_timestamp() - min(a.query_start))::float8,
       string_agg(distinct c.relname, ', ')
  from pg_locks as l
  join pg_class as c on c.oid = l.relation
  join pg_namespace as n on n.oid = c.relnamespace
  join pg_database as d on d.oid = l.database
  left join pg_stat_activity as a on a.pid = l.pid
 where l.locktype = 'relation' and l.granted and d.datname = current_database() and n.nspname = %(schema)s::name
   and c.relkind in ('r', 'p') and l.pid is distinct from pg_backend_pid()
   and coalesce(a.xact_start < clock_timestamp() - make_interval(secs => %(longer_than)s::float8), true)
 group by l.pid, a.application_name, a.backend_type
 order by min(a.xact_start) nulls last
 limit 5;
