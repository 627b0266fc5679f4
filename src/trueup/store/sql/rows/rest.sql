-- settle: held -> resting (looked at again later), quarantined, or forgotten (given back). Nothing is written to the user's row.
-- Fence: (reconciler, key, holder, term), the lease not passed. A key that does not come back was lost. Index: rows_pkey.
with mine as (
  select * from unnest(%(keys)s::text[], %(terms)s::bigint[], %(states)s::text[], %(delays)s::float8[], %(attempts)s::int[], %(errors)s::text[],
                       %(reasons)s::text[], %(proposals)s::text[])
    as m(key, term, state, delay, attempt, error, reason, proposed)
), rested as (
  update {schema}.rows as r set {rested}
    from mine as m
   where r.reconciler = %(reconciler)s and r.key = m.key and m.state <> 'gone'
     and r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now}
  returning r.key
), gone as (
  delete from {schema}.rows as r using mine as m
   where r.reconciler = %(reconciler)s and r.key = m.key and m.state = 'gone'
     and r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now}
  returning r.key
)
select key, 'changed' from rested union all select key, 'changed' from gone;
