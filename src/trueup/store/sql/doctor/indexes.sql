-- Indexes of our tables, and whether each can be used. Reads the catalogue.
select i.relname::text, x.indisvalid and x.indisready
  from pg_index as x join pg_class as i on i.oid = x.indexrelid
 where i.relnamespace = (select n.oid from pg_namespace as n where n.nspname = %(schema)s::text)
 order by 1;
