-- For the message about a missing table: the current database, and which tables exist instead, without our own. Partitions only when
-- they have the name.
select current_database()::text, current_setting('search_path'), array(select nspname::text from pg_namespace where nspname::text !~ '^pg_'::text) as schemas,
       array(select array[n.nspname::text, c.relname::text]
               from pg_class as c
               join pg_namespace as n on n.oid = c.relnamespace
              where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname::text !~ '^pg_(catalog|toast)'::text and n.nspname <> 'information_schema'
                and c.relnamespace is distinct from to_regnamespace('{schema}')::oid
                and (c.relname = %(name)s::text or not c.relispartition and n.nspname::text !~ '^pg_temp'::text)
              order by c.relname <> %(name)s::text, n.nspname, c.relname
              limit 5000) as tables;
