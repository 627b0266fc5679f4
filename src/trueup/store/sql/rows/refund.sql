-- Gives back attempts that were spent before it turned out that the rows were not at fault. Fence: (reconciler, key, term), resting.
-- Index: rows_pkey. Locks as in change.sql.
with theirs as materialized (
  select m.key, r.reconciler from unnest(%(keys)s::text[], %(terms)s::bigint[]) as m(key, term), lateral (
    select r.reconciler, r.state, r.term from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update
  ) as r
   where r.term = m.term and r.state = 'resting'
)
update {schema}.rows as r set attempt = greatest(0, r.attempt - 1)
  from theirs as m
 where r.reconciler = m.reconciler and r.key = m.key;
