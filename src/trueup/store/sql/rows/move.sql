-- Moves chosen rows of one state on, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve). Within one table, and told of as in delete.sql; move_across.sql is for partitioned ones.
with picked as materialized (
  select array({oldest}) as slots
)
update {table} as t set {assignments}
 where t.ctid = any((select slots from picked)::tid[]) and (select {tell} from picked as p) is not null;
