-- A table and all its partitions, each with the rows it has by the statistics, scaled to the pages it has now, as the planner does it.
-- Without statistics: 50 rows on a page, which is a guess.
with recursive tree as (
  select %(table)s::oid as oid
  union
  select i.inhrelid from tree join pg_inherits as i on i.inhparent = tree.oid
), sizes as (
  select n.nspname::text as schema, c.relname::text as name, c.reltuples, c.relpages,
         case when c.relkind = 'r' then coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::int8 else 0 end as pages
    from tree
    join pg_class as c on c.oid = tree.oid
    join pg_namespace as n on n.oid = c.relnamespace
)
select schema, name, case when relpages > 0 and reltuples >= 0::float4 then reltuples::float8 / relpages::float8 * pages::float8 else pages * 50 end::int8 as estimate
  from sizes;
