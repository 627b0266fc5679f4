(select hashtextextended(concat_ws(' ', c.oid::text, c.xmin::text, n.xmin::text,
         (select string_agg(a.attnum::text || ':' || a.xmin::text, ' ' order by a.attnum) from pg_attribute as a where a.attrelid = c.oid and a.attnum > 0),
         'unique', (select string_agg(i.indexrelid::text || ':' || i.xmin::text, ' ' order by i.indexrelid) from pg_index as i where i.indrelid = c.oid and i.indisunique),
         'types', (with recursive types as (
                     select t.oid, t.xmin, t.typnamespace, t.typbasetype from pg_attribute as a join pg_type as t on t.oid = a.atttypid
                      where a.attrelid = c.oid and a.attnum > 0 and a.atttypid >= 16384::oid
                     union all
                     select t.oid, t.xmin, t.typnamespace, t.typbasetype from types as d join pg_type as t on t.oid = d.typbasetype)
                   select string_agg(concat_ws(':', t.oid::text, t.xmin::text, s.xmin::text, e.oid::text, e.xmin::text), ' ' order by t.oid, e.oid)
                     from types as t join pg_namespace as s on s.oid = t.typnamespace left join pg_enum as e on e.enumtypid = t.oid),
         'triggers', (select string_agg(g.oid::text || ':' || g.xmin::text, ' ' order by g.oid) from pg_trigger as g where g.tgrelid = c.oid and not g.tgisinternal),
         'rules', (select string_agg(w.oid::text || ':' || w.xmin::text, ' ' order by w.oid) from pg_rewrite as w where w.ev_class = c.oid),
         'policies', (select string_agg(p.oid::text || ':' || p.xmin::text, ' ' order by p.oid) from pg_policy as p where p.polrelid = c.oid)), 0)
   from pg_class as c
   join pg_namespace as n on n.oid = c.relnamespace
  where c.oid = (select k.oid from pg_class as k join pg_namespace as s on s.oid = k.relnamespace
                  where k.relname = %(table_name)s::text
                    and case when %(table_schema)s::text is null then s.nspname = any(current_schemas(false)) and s.nspname::text !~ '^pg_temp'::text
                             else s.nspname = %(table_schema)s::text end
                  order by array_position(current_schemas(false), s.nspname) limit 1))
