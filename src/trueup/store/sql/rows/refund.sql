-- Gives back attempts that were spent before it was known that the fault was not the rows'. Fence: (reconciler, key, term), resting.
-- Index: rows_pkey.
update {schema}.rows as r set attempt = greatest(0, r.attempt - 1)
  from unnest(%(keys)s::text[], %(terms)s::bigint[]) as m(key, term)
 where r.reconciler = %(reconciler)s and r.key = m.key and r.term = m.term and r.state = 'resting';
