-- For claim='row_lock': locks a claimed row for the handler's own transaction and reads it as it is now.
-- Fence: (reconciler, key, holder, term), the lease not expired. No row back: rows/locked_out.sql says why.
-- Index: rows_pkey, and the user's key; looked up by these alone, as in claim_fresh.sql.
select {seen}::text, {columns} from {table} as t
 where {t_is_p} and ({chosen}) is true
   and (select r.state = 'held' and r.holder = %(holder)s and r.term = %(term)s and r.due_at > {now}
          from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = %(key)s limit 1)
   for no key update of t skip locked;
