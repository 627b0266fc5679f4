-- Tables of ours: whether autovacuum is switched off for one, how many dead rows it has, and what this role may not do. Reads the catalogue.
select c.relname::text, coalesce(array_to_string(c.reloptions, ',') like '%%autovacuum_enabled=false%%' or array_to_string(c.reloptions, ',') like '%%autovacuum_enabled=off%%', false) as unvacuumed,
       pg_stat_get_dead_tuples(c.oid)::float8 as dead, pg_stat_get_live_tuples(c.oid)::float8 as live,
       array(select p.wanted from unnest(array['select', 'insert', 'update', 'delete']) as p(wanted)
              where not has_table_privilege(c.oid, p.wanted)) as missing
  from pg_class as c
 where c.relnamespace = (select n.oid from pg_namespace as n where n.nspname = %(schema)s::text) and c.relkind in ('r', 'p')
 order by 1;
