-- The rows that match a reconciler, in its order: what a dry run shows. Index: one of the user's own, and rows_pkey.
select {t_key}, {state}, {due}, coalesce(k.trueup_attempt, 0){columns}
  from {table} as t
  -- No name in here may be one of the user's columns: `where=` names those without a table.
  left join lateral (select r.attempt as trueup_attempt, r.state as trueup_known, r.due_at as trueup_due_at
                       from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = {t_key} limit 1) as k on true
 where {free} and (k.trueup_known is null or k.trueup_known in ('held', 'resting') and k.trueup_due_at <= {now})
 order by {ordered} limit %(most)s;
