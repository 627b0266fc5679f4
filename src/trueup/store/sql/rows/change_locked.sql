-- For claim='row_lock': writes the outcome (To, Stay) to a row that this transaction has locked. Compare-and-set as in change.sql: if
-- nothing is written, the handler has changed the row itself. That is an error, so that a commit in the same message does not happen.
-- The error is a cast of a text that is no number: no trigger raises the same one by chance. The record is settled after the commit. Index: the user's key.
with written as (
  update {table} as t set {assignments} from (select %(seen_state)s::text as seen_state, %(seen)s::text as seen) as h
   where {t_is_p} and ({as_seen}) is true
  returning 1{kept}
)
select (case when count(*) > 0 then '1' else 'trueup: the row is not as it was read' end)::int from written;
