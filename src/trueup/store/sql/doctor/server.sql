-- The server and this session: its clock, its settings, its connections. Reads pg_stat_activity and pg_settings.
select pg_backend_pid() as pid, clock_timestamp() as now, pg_is_in_recovery() as standby,
       pg_jit_available() and current_setting('jit') = 'on' as compiles,
       current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on' as vacuums,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
         - coalesce(current_setting('reserved_connections', true)::integer, 0) as places,
       (select count(*) from pg_stat_activity as a where a.backend_type = 'client backend')::integer as connections,
       (select has_schema_privilege(n.oid, 'create') and not exists (select from pg_class as c
                 where c.relnamespace = n.oid and c.relkind = 'p' and not pg_has_role(c.relowner, 'usage'))
          from pg_namespace as n where n.nspname = %(schema)s::text) as partitions,
       quote_ident(current_user) as role;
