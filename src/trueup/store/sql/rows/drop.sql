-- held, resting, quarantined or discarded -> no record: there can be no row with this key. Fence: (reconciler, key, term); a lease on it
-- has expired. Index: rows_pkey. Locks as in change.sql.
with theirs as materialized (
  select m.key, r.reconciler from unnest(%(key)s::text[], %(term)s::bigint[]) as m(key, term), lateral (
    select r.reconciler, r.state, r.term, r.due_at from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update
  ) as r
   where r.term = m.term and (r.state <> 'held' or r.due_at <= {now})
)
delete from {schema}.rows as r using theirs as m
 where r.reconciler = m.reconciler and r.key = m.key
returning r.key;
