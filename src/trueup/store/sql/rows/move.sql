-- Moves chosen rows of one state to another, oldest first, up to a number, without a handler. Skips locked rows, and rows that another
-- transaction has changed since this statement began. Index: one of the user's own (IndexMissing names a suitable one). Within one
-- table, and reported as in delete.sql; move_across.sql is for partitioned ones.
with picked as materialized (
  select array({oldest}) as slots
)
update {table} as t set {assignments}
 where t.ctid = any((select slots from picked)::tid[]) and (select {tell} from picked as p) is not null{kept};
