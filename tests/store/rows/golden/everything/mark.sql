-- Marks claimed rows as a claim does (claimed_as, the user's own lease columns): for those that were claimed unmarked, because the
-- database had refused to mark one of them. Each row is judged separately: `changed`, with the row as it is then; `busy` or `conflict`,
-- when it is no longer free; a key that does not come back was lost.
-- Fence: (reconciler, key, holder, term), the lease not expired. Index: rows_pkey, and the user's key. Locks as in change.sql.
with mine as (
  select * from unnest(%(key)s::text[], %(term)s::bigint[], %(k1)s::text[], %(k2)s::text[]) as m(key, term, k1, k2)
), there as materialized (
  select m.key, t.* from mine as m, lateral (
    select ((t."state" operator(pg_catalog.=) 'new'::stage and t."due_at" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()) or t."state" operator(pg_catalog.=) 'working'::stage) and (amount > 0
) and (t."until" is null or t."until" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()))) is true as as_left, (true) is true as chosen from "public"."t" as t where t."tenant" operator(pg_catalog.=) m.k1::uuid and t."id" operator(pg_catalog.=) m.k2::text limit 1 for no key update of t skip locked
  ) as t
), held as materialized (
  select m.*, r.reconciler, (m.key in (select key from there)) is true as there
    from mine as m, lateral (
    select r.reconciler, r.state, r.holder, r.term, r.due_at from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update
  ) as r
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())
), changed as (
  update "public"."t" as t set "state" = 'working'::stage, "changed_at" = (coalesce(%(now)s::timestamptz, pg_catalog.now()) at time zone 'utc'), "version" = coalesce(t."version", 0) + 1, "owner" = (%(owner)s::text || '/' || h.term::text), "until" = coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => %(lease_for)s::float8)
    from held as h
   where h.there and t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text and (h.key in (select key from there where as_left)) is true
  returning h.key, t."version" as trueup_seen, t."tenant" as trueup_c1, t."id" as trueup_c2, t."state" as trueup_c3, t."changed_at" as trueup_c4, t."due_at" as trueup_c5, t."version" as trueup_c6, t."owner" as trueup_c7, t."until" as trueup_c8, t."amount" as trueup_c9
)
select c.key, 'changed', c.trueup_seen::text, c.trueup_c1, c.trueup_c2, c.trueup_c3, c.trueup_c4, c.trueup_c5, c.trueup_c6, c.trueup_c7, c.trueup_c8, c.trueup_c9 from (select pg_catalog.count(*), pg_catalog.set_config('datestyle', 'ISO', false), pg_catalog.set_config('intervalstyle', 'postgres', true), pg_catalog.set_config('extra_float_digits', '1', true) from changed) as one, changed as c
union all
select h.key, case when not h.there and exists (select from "public"."t" as t where t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text) then 'busy'
                   when (h.key in (select key from there where as_left)) is true then 'undone' else 'conflict' end, null, null, null, null, null, null, null, null, null, null
  from held as h
 where (h.key in (select key from changed)) is not true;
