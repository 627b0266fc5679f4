-- Deletes chosen rows of one state, oldest first, up to a number; the database does it alone. Rows that somebody has locked are left.
-- Index: one of the user's own (IndexMissing names the one that would serve).
with picked as materialized (
  select {slot}, {late_s} from {table} as t where {eligible} order by {ordered} limit %(most)s for update skip locked
), hit as (
  delete from {table} as t{using_picked}
   where {is_picked}
  returning 1
)
select (select count(*) from hit), coalesce(max(late_s), 0), coalesce(sum(late_s), 0), count(*) filter (where late_s > %(grace)s::float8),
       array(select count(p.late_s) from generate_series(0, cardinality(%(bounds)s::float8[])) as b(n)
               left join picked as p on width_bucket(greatest(p.late_s, 0), %(bounds)s::float8[]) = b.n
              group by b.n order by b.n)
  from picked;
