-- For claim='row_lock': deletes a row that this transaction has locked, as change_locked.sql writes one. Index: the user's key.
with written as (
  delete from {table} as t using (select %(seen_state)s::text as seen_state, %(seen)s::text as seen) as h
   where {t_is_p} and ({as_seen}) is true
  returning 1
)
select (case when count(*) > 0 then '1' else 'trueup: the row is not as it was read' end)::int from written;
