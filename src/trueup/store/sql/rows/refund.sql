-- Gives back attempts that were spent before it was known that the fault was not the rows'. Fence: (reconciler, key, term), resting.
-- Index: rows_pkey. Locks in the order of the keys, as every statement over several rows does.
with theirs as materialized (
  select r.key from unnest(%(keys)s::text[], %(terms)s::bigint[]) as m(key, term)
    join {schema}.rows as r on r.reconciler = %(reconciler)s and r.key = m.key
   where r.term = m.term and r.state = 'resting'
   order by r.key
     for update of r
)
update {schema}.rows as r set attempt = greatest(0, r.attempt - 1)
  from theirs as m
 where r.reconciler = %(reconciler)s and r.key = m.key;
