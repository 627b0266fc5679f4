-- settle: held -> resting (due again later), quarantined, or without a record (handed back). Nothing is written to the user's row.
-- Fence: (reconciler, key, holder, term), the lease not expired. A key that does not come back was lost.
-- Index: rows_pkey. Locks as in change.sql.
with mine as (
  select * from unnest(%(key)s::text[], %(term)s::bigint[], %(state)s::text[], %(delay)s::float8[], %(attempt)s::int[], %(error)s::text[],
                       %(reason)s::text[], %(proposed)s::text[], %(ongoing)s::boolean[])
    as m(key, term, state, delay, attempt, error, reason, proposed, ongoing)
), held as materialized (
  select m.*, r.reconciler from mine as m, lateral (
    select r.reconciler, r.state, r.holder, r.term, r.due_at from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update
  ) as r
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now}
), rested as (
  update {schema}.rows as r set {rested}
    from held as m
   where r.reconciler = m.reconciler and r.key = m.key and m.state <> 'gone'
  returning r.key
), gone as (
  delete from {schema}.rows as r using held as m
   where r.reconciler = m.reconciler and r.key = m.key and m.state = 'gone'
  returning r.key
)
select key, 'changed' as verdict from rested union all select key, 'changed' from gone;
