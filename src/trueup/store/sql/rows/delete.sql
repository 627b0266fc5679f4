-- Deletes chosen rows of one state, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve).
-- The row's place is enough inside the statement that has locked the row, but only within one table: delete_across.sql is for
-- partitioned ones. Nothing comes back, which would cost a fifth of the whole; how late the rows were is told beside it
-- (rows/told.sql), in the same transaction.
with picked as materialized (
  select array({oldest}) as slots
)
delete from {table} as t
 where t.ctid = any((select slots from picked)::tid[]) and (select {tell} from picked as p) is not null;
