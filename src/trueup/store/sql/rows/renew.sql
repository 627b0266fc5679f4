-- Extends the leases of rows in hand. Fence: (reconciler, key, holder, term), only while they have not passed. A key that does
-- not come back is lost. Index: rows_pkey. Locks in the order of the keys, as every statement over several rows does.
with held as materialized (
  select r.key from unnest(%(keys)s::text[], %(terms)s::bigint[]) as m(key, term)
    join {schema}.rows as r on r.reconciler = %(reconciler)s and r.key = m.key
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now}
   order by r.key
     for update of r
)
update {schema}.rows as r set due_at = {now} + make_interval(secs => %(lease_for)s::float8)
  from held as h
 where r.reconciler = %(reconciler)s and r.key = h.key
returning r.key;
