-- Partitions of the history whose rows a publication could not tell apart: workers of an older release have made them.
select c.relname
  from pg_partition_tree('{schema}.history') as t
  join pg_class as c on c.oid = t.relid::oid
 where t.isleaf and c.relreplident <> 'f'
   and not exists (select from pg_index as i where i.indrelid = c.oid and i.indisprimary);
