-- The next rows of one state that a move or deletion would touch, oldest first, after a position in that order: after the database has
-- refused a batch, or a trigger has kept rows of one, they are taken by their keys. Locks nothing: rows are checked again when taken.
-- Skips rows in backoff after a refusal, or in quarantine. Index: one of the user's own, and rows_pkey.
select {t_key}, {long_key}, {state}, {order},
       coalesce((select r.attempt from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = {t_key} limit 1), 0),
       (select r.term from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = {t_key} limit 1),
       (select jsonb_extract_path_text(r.errors, '-1', 'type') from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = {t_key} limit 1), {key_texts}
  from {table} as t
 where {eligible} order by {ordered} limit %(most)s;
