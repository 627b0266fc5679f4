-- Moves chosen rows of one state on, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve).
-- Comes back by how late they were, one row for those between two bounds. The bounds come negated, last first: what is exactly at one
-- then counts as below it.
with picked as materialized (
  select {slot}, {late_s} from {table} as t where {eligible} order by {ordered} limit %(most)s for {lock} skip locked
), moved as (
  update {table} as t set {assignments}{from_picked}
   where {is_picked}
  returning {keys}
), hit as materialized (
  select p.late_s from picked as p join moved as m using ({key_names})
)
select cardinality(%(bounds)s::float8[]) - width_bucket(-greatest(late_s, 0), %(bounds)s::float8[]), count(*), max(late_s), sum(late_s),
       count(*) filter (where late_s > %(grace)s::float8)
  from hit group by 1;
