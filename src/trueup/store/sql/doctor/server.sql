-- The server and this session: its clock and its settings. Reads pg_settings and the catalogue.
select pg_backend_pid() as pid, clock_timestamp() as now, pg_is_in_recovery() as standby,
       pg_jit_available() and current_setting('jit') = 'on' as compiles,
       current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on' as vacuums,
       (select has_schema_privilege(n.oid, 'create') and not exists (select from pg_class as c
                 where c.relnamespace = n.oid and c.relkind = 'p' and not pg_has_role(c.relowner, 'usage'))
          from pg_namespace as n where n.nspname = %(schema)s::text) as partitions,
       quote_ident(current_user) as role;
