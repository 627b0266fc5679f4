-- For claim='row_lock': writes the outcome (To, Stay) to a row that this transaction has locked. Compare-and-set as in change.sql: that
-- nothing is written means that the handler has changed it itself, and is an error (division by zero), so that a commit which is sent
-- along in the same message does not happen. What is known about the row is settled after the commit. Index: the user's key.
with written as (
  update {table} as t set {assignments} from (select %(seen_state)s::text as seen_state, %(seen)s::text as seen) as h
   where {t_is_p} and ({as_seen}) is true
  returning 1
)
select 1 / count(*) from written;
