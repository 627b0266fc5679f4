there as materialized (
  select m.key from mine as m join {table} as t on {t_is_m}
     for {lock} of t skip locked
), held as materialized (
  select m.*, there.key is not null as there
    from mine as m left join there on there.key = m.key
    join {schema}.rows as r on r.reconciler = %(reconciler)s and r.key = m.key
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now}
   order by r.key
     for update of r
)
