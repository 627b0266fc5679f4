-- Deletes chosen rows of one state, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve).
with picked as materialized (
  select {slot} from {table} as t where {eligible} order by {ordered} limit %(most)s for update skip locked
), hit as (
  delete from {table} as t{using_picked}
   where {is_picked}
  returning {late_s}
)
select {counted};
