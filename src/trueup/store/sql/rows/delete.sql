-- Deletes chosen rows of one state, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left,
-- and so are those that somebody has touched since this statement began. Index: one of the user's own (IndexMissing names the one that
-- would serve).
-- Comes back by how late they were, one row for those between two bounds. The bounds come negated, last first: what is exactly at one
-- then counts as below it.
with picked as materialized (
  select {slot} from {table} as t where {eligible} order by {ordered} limit %(most)s for update skip locked
), hit as (
  delete from {table} as t{using_picked}
   where {is_picked}
  returning {late_s}
)
select cardinality(%(bounds)s::float8[]) - width_bucket(-greatest(late_s, 0), %(bounds)s::float8[]), count(*), max(late_s), sum(late_s),
       count(*) filter (where late_s > %(grace)s::float8)
  from hit group by 1;
