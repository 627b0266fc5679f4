-- Moves chosen rows of one state on, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve).
-- Comes back: how many, and how late the latest and all together were; how late each was only where they fall between different
-- bounds, or where not all that were picked have been moved. The bounds come negated, last first: what is exactly at one then counts
-- as below it.
with picked as materialized (
  {oldest}
), moved as (
  update {table} as t set {assignments}{from_picked}
   where {is_picked}
  returning {keys}
), told as materialized (
  select count(*) as picked, {late_of_min} as worst_s, {late_of_max} as least_s, {late_in_all} as total_s from picked
)
select m.hit, worst_s, total_s,
       case when m.hit < picked or {between_different_bounds} then array(select {late} from picked join moved using ({key_names})) end
  from told, (select count(*) as hit from moved) as m;
