-- The days that have a partition, for each finished state.
select p.relname as parent, c.relname as name, pg_get_expr(c.relpartbound, c.oid) as bounds
  from pg_inherits as i
  join pg_class as c on c.oid = i.inhrelid
  join pg_class as p on p.oid = i.inhparent
  join pg_namespace as n on n.oid = p.relnamespace
 where n.nspname = %(schema)s and p.relname in ('history_done', 'history_dead', 'history_cancelled', 'ticks')
 order by p.relname, c.relname;
