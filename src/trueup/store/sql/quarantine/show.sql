-- The whole record of rows with these keys, in any state. Index: rows_pkey.
select r.reconciler, r.key, r.state, r.was_state, r.attempt, r.crashes, r.claimed_at, r.changed_at, nullif(r.due_at, 'infinity') as due_at, r.holder, r.reason, r.errors, r.proposed
  from {schema}.rows as r
 where r.reconciler = %(reconciler)s and r.key = any(%(keys)s::text[]);
