-- Deletes leases that ended more than a day ago, a batch at a time. A name that comes back has a larger term: terms are one sequence.
-- A lease of another backend (Redis, an advisory lock) has no end here; its holder runs `leases/touch` once an hour.
-- Locked rows, above all those of fenced transactions, are left for the next pass. Reads the whole table.
delete from {schema}.leases
 where name = any(array(
   select name from {schema}.leases, (select coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(keep)s::float8) as past) as t
    where greatest(renewed_at, lease_until) < t.past
    limit 1000 for update of leases skip locked))
returning name;
