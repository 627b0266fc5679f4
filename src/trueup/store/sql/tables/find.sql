-- The table of a name, at most one row. Without a schema the search_path decides, except that a temporary table,
-- which a trigger may have made in this session, does not hide the table of its name.
select c.oid, n.nspname::text, c.relname::text, quote_ident(n.nspname), quote_ident(c.relname), c.relkind::text, c.relpersistence = 't' as temporary,
       c.relkind = 'r' and exists (select from pg_inherits as i where i.inhparent = c.oid) as inherited,
       quote_ident(current_user) as role, has_schema_privilege(n.oid, 'usage') as usable, has_table_privilege(c.oid, 'delete') as deletable,
       (select min(f.oid::regclass::text) from pg_partition_tree(c.oid) as p join pg_class as f on f.oid = p.relid::oid and f.relkind = 'f') as elsewhere,
       (select string_agg(quote_ident(w.rulename), ', ' order by w.rulename) from pg_rewrite as w
         where w.ev_class = c.oid and w.ev_type in ('2', '4') and w.ev_enabled <> 'D') as rules,
       row_security_active(c.oid) as guarded,
       c.relkind = 'p' or exists (select from pg_trigger as g where g.tgrelid = c.oid and not g.tgisinternal) as triggered
  from pg_class as c
  join pg_namespace as n on n.oid = c.relnamespace
 where c.oid = (select k.oid from pg_class as k join pg_namespace as s on s.oid = k.relnamespace
                 where k.relname = %(name)s::text
                   and case when %(schema)s::text is null then s.nspname = any(current_schemas(false)) and s.nspname::text !~ '^pg_temp'::text
                            else s.nspname = %(schema)s::text end
                 order by array_position(current_schemas(false), s.nspname) limit 1);
