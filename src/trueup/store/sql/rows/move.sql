-- Moves chosen rows of one state on, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve).
-- Comes back: how many, and how late the latest and the earliest of them were; how late each was only where they are not alike, or not
-- all that were picked have been moved.
with picked as materialized (
  {oldest}
), moved as (
  update {table} as t set {assignments}{from_picked}
   where {is_picked}
  returning {keys}
)
select (select count(*) from moved), {late_of_min}, {late_of_max},
       case when count(*) > (select count(*) from moved) or not {alike}
            then array(select {late} from picked join moved using ({key_names})) end
  from picked;
