there as materialized (
  select m.key, t.* from mine as m, lateral (
    select ({as_seen_m}) is true as as_left, ({chosen}) is true as chosen from {table} as t where {t_is_m} limit 1 for {lock} of t skip locked
  ) as t
), held as materialized (
  select m.*, r.reconciler, (m.key in (select key from there)) is true as there
    from mine as m, lateral (
    select r.reconciler, r.state, r.holder, r.term, r.due_at from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update{skip}
  ) as r
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now}
)
