-- The history has no key: rows come from several tables and are only ever added, moved and expired. Where a publication covers it
-- (`create publication p for all tables`), rows without an identity can be neither deleted nor moved, so the whole row is it.
-- Nothing more is written unless wal_level is logical, and then only for rows that are deleted or moved. Each table has its own;
-- days to come get theirs when they are made.
do $$
declare
  leaf regclass;
begin
  for leaf in select relid from pg_catalog.pg_partition_tree('{schema}.history') where isleaf loop
    execute 'alter table ' || leaf::text || ' replica identity full';
  end loop;
end
$$;
