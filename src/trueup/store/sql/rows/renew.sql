-- Extends the leases of rows in hand. Fence: (reconciler, key, holder, term), only while they have not passed. A key that does
-- not come back is lost. Index: rows_pkey.
update {schema}.rows as r set due_at = {now} + make_interval(secs => %(lease_for)s::float8)
  from unnest(%(keys)s::text[], %(terms)s::bigint[]) as m(key, term)
 where r.reconciler = %(reconciler)s and r.key = m.key and r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now}
returning r.key;
