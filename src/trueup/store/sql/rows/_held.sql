there as materialized (
  select m.key from mine as m join {table} as t on {t_is_m}
     for {lock} of t skip locked
), held as materialized (
  select m.*, (m.key in (select key from there)) is true as there
    from mine as m, lateral (
    select r.state, r.holder, r.term, r.due_at from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update{skip}
  ) as r
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now}
)
