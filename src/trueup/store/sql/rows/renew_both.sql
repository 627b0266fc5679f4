-- Extends the leases of held rows, including those in the user's own columns. Fence: (reconciler, key, holder, term) and the owner
-- in the user's row, only while they have not expired. Returns the same as renew.sql, and never waits for a lock either. While another
-- session has locked the user's row, no other program can take it, and only our own lease is extended.
-- A trigger of the user may change the row's time of change or version: the new values are returned.
-- Index: rows_pkey, and the user's key. Locks the user's row before its record.
with mine as (
  select * from unnest({arrays}) as m({names})
), {held}, renewed as (
  update {table} as t set {until} = {now} + make_interval(secs => %(lease_for)s::float8)
    from held as h
   where h.there and {t_is_h} and ({owned}) is true
  returning h.key, {seen} as trueup_seen
), locked as materialized (
  select h.key from held as h where not h.there and exists (select from {table} as t where {t_is_h})
), kept as (
  update {schema}.rows as r set due_at = {now} + make_interval(secs => %(lease_for)s::float8), started = r.started or h.started
    from held as h
   where r.reconciler = h.reconciler and r.key = h.key
     and ((h.key in (select key from renewed)) is true or (h.key in (select key from locked)) is true)
)
select r.key, r.trueup_seen::text, 'renewed' from (select count(*), {plainly} from renewed) as one, renewed as r
union all
select key, null::text, 'renewed' from locked
union all
select m.key, null::text, 'busy' from mine as m, lateral (
    select r.state, r.holder, r.term, r.due_at from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1
  ) as r
 where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > {now} and (m.key in (select key from held)) is false;
