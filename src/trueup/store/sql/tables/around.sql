-- For the message about a missing table: the current database, and which tables exist instead, without our own. Partitions only when
-- they have the name. A schema that has one of the name, and that this role may not use, is left out of the search path.
select current_database()::text, current_setting('search_path'), quote_ident(current_user),
       (select quote_ident(n.nspname) from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
         where %(schema)s::text is null and c.relname = %(name)s::text and c.relkind in ('r', 'p') and not has_schema_privilege(n.oid, 'usage')
           and n.nspname::text !~ '^pg_'::text
         order by n.nspname limit 1) as closed,
       array(select nspname::text from pg_namespace where nspname::text !~ '^pg_'::text) as schemas,
       array(select array[n.nspname::text, c.relname::text]
               from pg_class as c
               join pg_namespace as n on n.oid = c.relnamespace
              where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname::text !~ '^pg_(catalog|toast)'::text and n.nspname <> 'information_schema'
                and c.relnamespace is distinct from to_regnamespace('{schema}')::oid
                and (c.relname = %(name)s::text or not c.relispartition and n.nspname::text !~ '^pg_temp'::text)
              order by c.relname <> %(name)s::text, n.nspname, c.relname
              limit 5000) as tables;
