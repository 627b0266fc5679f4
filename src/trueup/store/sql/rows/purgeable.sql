-- How many rows a move or deletion would touch, up to a number; or (`late_by`) only those due or stale for longer than that.
-- Index: one of the user's own.
select count(*) from (
  select from {table} as t
   where {chosen} and (%(late_by)s::float8 is null or {due} < {now} - make_interval(secs => %(late_by)s::float8))
   limit %(most)s) as w;
