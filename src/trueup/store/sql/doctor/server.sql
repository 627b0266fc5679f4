-- The server and this session: its clock, its settings, its connections. Reads pg_stat_activity and pg_settings.
select pg_backend_pid() as pid, clock_timestamp() as now, pg_is_in_recovery() as standby,
       pg_jit_available() and current_setting('jit') = 'on' as compiles,
       current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on' as vacuums,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer as places,
       (select count(*) from pg_stat_activity as a where a.backend_type = 'client backend')::integer as connections,
       pg_has_role((select n.nspowner from pg_namespace as n where n.nspname = %(schema)s::text), 'usage') as owner,
       current_user::text as role;
