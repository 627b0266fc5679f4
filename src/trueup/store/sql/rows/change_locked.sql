-- For claim='row_lock': writes the outcome (To, Stay) to a row that this transaction has locked. Compare-and-set as in change.sql: no
-- row back means that the handler has changed it itself. What is known about the row is settled after the commit. Index: the user's key.
update {table} as t set {assignments} from (select %(seen_state)s::text as seen_state, %(seen)s::text as seen) as h
 where {t_is_p} and ({as_seen}) is true
returning true;
