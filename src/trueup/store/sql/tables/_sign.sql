(select hashtextextended(concat_ws(' ', c.oid::text, c.xmin::text, n.xmin::text,
         (select string_agg(a.attnum::text || ':' || a.xmin::text, ' ' order by a.attnum) from pg_attribute as a where a.attrelid = c.oid and a.attnum > 0),
         'unique', (select string_agg(i.indexrelid::text || ':' || i.xmin::text, ' ' order by i.indexrelid) from pg_index as i where i.indrelid = c.oid and i.indisunique),
         'enums', (select string_agg(e.oid::text || ':' || e.xmin::text, ' ' order by e.oid)
                     from pg_attribute as a join pg_enum as e on e.enumtypid = a.atttypid where a.attrelid = c.oid and a.attnum > 0),
         'rules', (select string_agg(w.oid::text || ':' || w.xmin::text, ' ' order by w.oid) from pg_rewrite as w where w.ev_class = c.oid),
         'policies', (select string_agg(p.oid::text || ':' || p.xmin::text, ' ' order by p.oid) from pg_policy as p where p.polrelid = c.oid)), 0)
   from pg_class as c
   join pg_namespace as n on n.oid = c.relnamespace
  where c.oid = (select case when %(table_schema)s::text is null then to_regclass(quote_ident(%(table_name)s::text))::oid
                             else (select k.oid from pg_class as k join pg_namespace as s on s.oid = k.relnamespace
                                    where s.nspname = %(table_schema)s::text and k.relname = %(table_name)s::text) end))
