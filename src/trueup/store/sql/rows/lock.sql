-- For claim='row_lock': locks a claimed row for the handler's own transaction and reads it as it is now.
-- Fence: (reconciler, key, holder, term). `gone`: it is no longer as it was claimed; `busy`: somebody has it locked; no row back:
-- the claim was lost. Index: rows_pkey, and the user's key.
with there as materialized (
  select * from (
    select {seen} as trueup_seen, {columns}, ({chosen}) as trueup_chosen from {table} as t where {t_is_p} limit 1 for no key update of t skip locked
  ) as t
   where t.trueup_chosen
)
select case when k.trueup_chosen then 'locked'
            when (select ({chosen}) from {table} as t where {t_is_p} limit 1) then 'busy' else 'gone' end, {handed}
  from (select r.state, r.holder, r.term, r.due_at from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = %(key)s limit 1) as r
  left join there as k on true
 where r.state = 'held' and r.holder = %(holder)s and r.term = %(term)s and r.due_at > {now};
