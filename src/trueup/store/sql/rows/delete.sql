-- Deletes chosen rows of one state, oldest first, up to a number, without a handler. Skips locked rows, and rows that another
-- transaction has changed since this statement began. Index: one of the user's own (IndexMissing names a suitable one).
-- The row's ctid is enough inside the statement that has locked the row, but only within one table: delete_across.sql is for
-- partitioned ones. Returns no rows, because returning them is expensive; rows/told.sql reports how late they were, in the same
-- transaction.
with picked as materialized (
  select array({oldest}) as slots
)
delete from {table} as t
 where t.ctid = any((select slots from picked)::tid[]) and (select {tell} from picked as p) is not null;
