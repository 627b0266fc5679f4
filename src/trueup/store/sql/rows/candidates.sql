-- The rows that a claim walks past from its position on, whether or not `where=` chooses them, and what is known about them.
-- Locks nothing. Index: rows_pkey, and one of the user's own, as for claim_fresh.sql.
with seen as materialized (
  select w.*, row_number() over (order by {sorted}) as trueup_n
    from (select * from ({branches}) as every_state order by {sorted} limit %(window)s) as w
)
select place.trueup_key, t.trueup_long_key, t.trueup_state, r.attempt, r.term, r.state, r.due_at <= {now}, jsonb_extract_path_text(r.errors, '-1', 'type'),
       place.trueup_null, {place}
  from seen as place
  cross join lateral (select {long_key} as trueup_long_key, {state} as trueup_state from {table} as t where {t_is_place} limit 1) as t
  left join lateral (
    select r.attempt, r.term, r.state, r.due_at, r.errors from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = place.trueup_key limit 1
  ) as r on true
 order by place.trueup_n;
