-- Rows there are for a reconciler, in its order: what a dry run shows. Index: one of the user's own, and rows_pkey.
select {t_key}, {state}, {due}, coalesce(r.attempt, 0), {columns}
  from {table} as t left join {schema}.rows as r on r.reconciler = %(reconciler)s and r.key = {t_key}
 where {chosen} and (r.key is null or r.state in ('held', 'resting') and r.due_at <= {now})
 order by {ordered} limit %(most)s;
