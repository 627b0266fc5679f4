-- Forgets leases that ended more than a day ago, a batch at a time. A name that comes back has a larger term: terms are one sequence.
-- A lease that is kept elsewhere (Redis, an advisory lock) has no end here, but `leases/touch` once an hour while it is held.
-- Rows that somebody has locked, a fenced transaction above all, are left for the next time. Reads the whole table.
delete from {schema}.leases
 where name = any(array(
   select name from {schema}.leases, (select coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(keep)s::float8) as past) as t
    where greatest(renewed_at, lease_until) < t.past
    limit 1000 for update of leases skip locked))
returning name;
