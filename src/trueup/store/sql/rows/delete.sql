-- Deletes chosen rows of one state, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve).
-- Comes back: how many, and how late the latest and all together were; how late each was only where they fall between different
-- bounds. The bounds come negated, last first: what is exactly at one then counts as below it.
with {picked}hit as (
  delete from {table} as t{using_picked}
   where {is_picked}
  returning {due} as due
), told as materialized (
  select count(*) as hit, {late_of_min} as worst_s, {late_of_max} as least_s, {late_in_all} as total_s from hit
)
select hit, worst_s, total_s,
       case when {between_different_bounds} then array(select {late} from hit) end
  from told;
