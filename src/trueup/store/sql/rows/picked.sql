-- The next rows of one state that a move or deletion would touch, oldest first, from behind a place in that order: after the database has
-- refused a batch, or a trigger has kept rows of one, they are taken by their keys. Locks nothing: what is taken is checked again then.
-- Passes over rows that rest after a refusal, or are in quarantine. Index: one of the user's own, and rows_pkey.
select {t_key}, {long_key}, {state}, {order},
       coalesce((select r.attempt from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = {t_key} limit 1), 0),
       (select r.term from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = {t_key} limit 1), {key_texts}
  from {table} as t
 where {eligible} order by {ordered} limit %(most)s;
