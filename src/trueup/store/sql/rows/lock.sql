-- For claim='row_lock': locks a claimed row for the handler's own transaction and reads it as it is now.
-- Fence: (reconciler, key, holder, term). `gone`: it is no longer as it was claimed; `busy`: somebody has it locked; no row back:
-- the claim was lost. Index: rows_pkey, and the user's key.
with there as materialized (
  select true as trueup_there, {seen} as trueup_seen, {columns} from {table} as t
   where {t_is_p} and {chosen}
     for no key update of t skip locked
)
select case when k.trueup_there then 'locked'
            when exists (select from {table} as t where {t_is_p} and {chosen}) then 'busy' else 'gone' end, {handed}
  from {schema}.rows as r left join there as k on true
 where r.reconciler = %(reconciler)s and r.key = %(key)s and r.state = 'held' and r.holder = %(holder)s and r.term = %(term)s and r.due_at > {now};
