-- Tables and sequences of ours: whether autovacuum is switched off for one, how many dead rows it has, and what this role may not do.
-- Statements name a partitioned table and not its partitions, so its privileges count for them. Reads the catalogue.
select c.relname::text,
       exists (select from pg_options_to_table(array_cat(c.reloptions, t.reloptions)) as o
                where o.option_name = 'autovacuum_enabled' and not o.option_value::boolean) as unvacuumed,
       pg_stat_get_dead_tuples(c.oid)::float8 as dead, pg_stat_get_live_tuples(c.oid)::float8 as live,
       case when c.relispartition then array[]::text[]
            when c.relkind = 'S' then array(select 'usage' where not has_sequence_privilege(c.oid, 'usage'))
            else array(select p.wanted from unnest(array['select', 'insert', 'update', 'delete']) as p(wanted)
                        where not has_table_privilege(c.oid, p.wanted)) end as missing
  from pg_class as c left join pg_class as t on t.oid = c.reltoastrelid
 where c.relnamespace = (select n.oid from pg_namespace as n where n.nspname = %(schema)s::text) and c.relkind in ('r', 'p', 'S')
 order by 1;
