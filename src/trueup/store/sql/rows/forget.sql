-- Forgets what is known about rows that are this reconciler's business no more: moved on, touched or deleted by somebody else.
-- Rows in quarantine are forgotten when they have left its states. Index: rows_due and rows_set_aside, then the user's key.
with over as materialized (
  (select r.reconciler, r.key, r.term from {schema}.rows as r
    where r.reconciler = %(reconciler)s and r.state in ('held', 'resting') and r.due_at <= {now}
      and not exists (select from {table} as t where {t_is_r} and {chosen})
    order by r.due_at limit %(most)s)
  union all
  (select r.reconciler, r.key, r.term from {schema}.rows as r
    where r.reconciler = %(reconciler)s and r.state in ('quarantined', 'discarded')
      and not exists (select from {table} as t where {t_is_r} and {in_state})
    order by r.changed_at limit %(most)s)
)
delete from {schema}.rows as r using over
 where r.reconciler = over.reconciler and r.key = over.key and r.term = over.term and (r.state in ('quarantined', 'discarded') or r.due_at <= {now})
returning r.key;
