-- What limits connections: the server, this database and this role, with how many there may be and how many there are, and the setting
-- that says so. Reads pg_stat_activity.
with taken as materialized (
  select a.datname, a.usename from pg_stat_activity as a where a.backend_type = 'client backend'
)
select 'the server' as whose, 'max_connections' as setting, (select count(*) from taken)::integer as taken,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
         - coalesce(current_setting('reserved_connections', true)::integer, 0) as places
union all
select format('database %%I', d.datname), format('alter database %%I connection limit', d.datname),
       (select count(*) from taken as t where t.datname = d.datname), d.datconnlimit
  from pg_database as d where d.datname = current_database() and d.datconnlimit >= 0
union all
select format('role %%I', r.rolname), format('alter role %%I connection limit', r.rolname),
       (select count(*) from taken as t where t.usename = r.rolname), r.rolconnlimit
  from pg_roles as r where r.rolname = current_user and r.rolconnlimit >= 0;
