-- Extends the leases of held rows, and records whose handler has begun (`started`). Fence: (reconciler, key, holder, term), only while
-- they have not expired. Returns `renewed`, or `busy`: another statement has locked the record (most likely settles it), try again; a
-- key that does not come back is lost. Index: rows_pkey. Never waits for a lock: the leases of all other rows depend on it.
with mine as materialized (
  select m.key, m.term, m.started from unnest(%(keys)s::text[], %(terms)s::bigint[], %(started)s::boolean[]) as m(key, term, started)
), held as materialized (
  select m.key, r.reconciler, m.started from mine as m, lateral (
    select r.reconciler, r.state, r.holder, r.term, r.due_at from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update skip locked
  ) as r
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now}
), renewed as (
  update {schema}.rows as r set due_at = {now} + make_interval(secs => %(lease_for)s::float8), started = r.started or h.started
    from held as h
   where r.reconciler = h.reconciler and r.key = h.key
)
select m.key, null, case when (m.key in (select key from held)) is true then 'renewed' else 'busy' end from mine as m, lateral (
    select r.state, r.holder, r.term, r.due_at from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1
  ) as r
 where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now};
