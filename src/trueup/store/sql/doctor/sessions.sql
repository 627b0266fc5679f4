-- Sessions of this database that keep dead rows from being removed: idle in a transaction, or in one that is old; and transactions that
-- were prepared and never ended. Each with the statement that ends it. Reads pg_stat_activity and pg_prepared_xacts.
select format('select pg_terminate_backend(%%s)', a.pid) as ended_by, coalesce(a.application_name, '') as name,
       coalesce(quote_ident(a.usename), '') as role, coalesce(a.state, '') as state,
       extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds
  from pg_stat_activity as a
 where a.datname = current_database() and a.pid <> pg_backend_pid() and a.xact_start is not null
   and a.xact_start < clock_timestamp() - case when a.state in ('idle in transaction', 'idle in transaction (aborted)')
                                               then make_interval(secs => %(idle)s::float8) else make_interval(secs => %(busy)s::float8) end
union all
select format('rollback prepared %%L', p.gid), '', quote_ident(p.owner), 'prepared', extract(epoch from clock_timestamp() - p.prepared)::float8
  from pg_prepared_xacts as p
 where p.database = current_database() and p.prepared < clock_timestamp() - make_interval(secs => %(idle)s::float8)
 order by 5 desc;
