-- Moves chosen rows of one state on, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve).
with picked as materialized (
  select {slot}, {late_s} from {table} as t where {eligible} order by {ordered} limit %(most)s for {lock} skip locked
), moved as (
  update {table} as t set {assignments}{from_picked}
   where {is_picked}
  returning {keys}
), hit as materialized (
  select p.late_s from picked as p join moved as m using ({key_names})
)
select {counted};
