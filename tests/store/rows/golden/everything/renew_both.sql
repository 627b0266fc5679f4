-- Extends the leases of held rows, including those in the user's own columns. Fence: (reconciler, key, holder, term) and the owner
-- in the user's row, only while they have not expired. Returns the same as renew.sql, and never waits for a lock either. While another
-- session has locked the user's row, no other program can take it, and only our own lease is extended.
-- A trigger of the user may change the row's time of change or version: the new values are returned.
-- Index: rows_pkey, and the user's key. Locks the user's row before its record.
with mine as (
  select * from unnest(%(key)s::text[], %(term)s::bigint[], %(k1)s::text[], %(k2)s::text[], %(started)s::boolean[]) as m(key, term, k1, k2, started)
), there as materialized (
  select m.key, t.* from mine as m, lateral (
    select (true) is true as as_left, (true) is true as chosen from "public"."t" as t where t."tenant" operator(pg_catalog.=) m.k1::uuid and t."id" operator(pg_catalog.=) m.k2::text limit 1 for no key update of t skip locked
  ) as t
), held as materialized (
  select m.*, r.reconciler, (m.key in (select key from there)) is true as there
    from mine as m, lateral (
    select r.reconciler, r.state, r.holder, r.term, r.due_at from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update skip locked
  ) as r
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())
), renewed as (
  update "public"."t" as t set "until" = coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => %(lease_for)s::float8)
    from held as h
   where h.there and t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text and (t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || h.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true
  returning h.key, t."version" as trueup_seen
), locked as materialized (
  select h.key from held as h where not h.there and exists (select from "public"."t" as t where t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text)
), kept as (
  update "trueup".rows as r set due_at = coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => %(lease_for)s::float8), started = r.started or h.started
    from held as h
   where r.reconciler = h.reconciler and r.key = h.key
     and ((h.key in (select key from renewed)) is true or (h.key in (select key from locked)) is true)
)
select r.key, r.trueup_seen::text, 'renewed' from (select pg_catalog.count(*), pg_catalog.set_config('datestyle', 'ISO', false), pg_catalog.set_config('intervalstyle', 'postgres', true), pg_catalog.set_config('extra_float_digits', '1', true) from renewed) as one, renewed as r
union all
select key, null::text, 'renewed' from locked
union all
select m.key, null::text, 'busy' from mine as m, lateral (
    select r.state, r.holder, r.term, r.due_at from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1
  ) as r
 where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now()) and (m.key in (select key from held)) is false;
