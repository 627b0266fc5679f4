-- How many, the worst and the sum of their lateness, how many were late, and how many between each two bounds. The bounds come negated,
-- last first: what is exactly at one then counts as below it.
       count(*), coalesce(max(late_s), 0), coalesce(sum(late_s), 0), count(*) filter (where late_s > %(grace)s::float8),
       array(select count(h.late_s) from generate_series(0, cardinality(%(bounds)s::float8[])) as b(n)
               left join hit as h on cardinality(%(bounds)s::float8[]) - width_bucket(-greatest(h.late_s, 0), %(bounds)s::float8[]) = b.n
              group by b.n order by b.n)
  from hit
