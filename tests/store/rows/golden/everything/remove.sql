-- settle: held -> done, and the row is deleted. Fence, compare-and-set, verdicts and locks as in change.sql.
-- Index: rows_pkey, and the user's key.
with mine as (
  select * from unnest(%(key)s::text[], %(term)s::bigint[], %(k1)s::text[], %(k2)s::text[], %(seen_state)s::text[], %(seen)s::text[]) as m(key, term, k1, k2, seen_state, seen)
), there as materialized (
  select m.key, t.* from mine as m, lateral (
    select (t."state" operator(pg_catalog.=) m.seen_state::stage and (t."version" operator(pg_catalog.=) m.seen::integer or t."version" is null and m.seen is null) and t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || m.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true as as_left, ((t."state" operator(pg_catalog.=) 'new'::stage and t."due_at" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()) or t."state" operator(pg_catalog.=) 'working'::stage) and (amount > 0
)) is true as chosen from "public"."t" as t where t."tenant" operator(pg_catalog.=) m.k1::uuid and t."id" operator(pg_catalog.=) m.k2::text limit 1 for update of t skip locked
  ) as t
), held as materialized (
  select m.*, r.reconciler, (m.key in (select key from there)) is true as there
    from mine as m, lateral (
    select r.reconciler, r.state, r.holder, r.term, r.due_at from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update
  ) as r
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())
), changed as (
  delete from "public"."t" as t using held as h
   where h.there and t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text and (t."state" operator(pg_catalog.=) h.seen_state::stage and (t."version" operator(pg_catalog.=) h.seen::integer or t."version" is null and h.seen is null) and t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || h.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true
  returning h.key
), verdicts as materialized (
  select h.*, case when (h.key in (select key from changed)) is true then 'changed'
                   when not h.there and exists (select from "public"."t" as t where t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text) then 'busy'
                   when (h.key in (select key from there where as_left)) is true then 'undone'
                   when (h.key in (select key from there where chosen)) is true then 'contested'
                   else 'conflict' end as verdict
    from held as h
), gone as (
  delete from "trueup".rows as r using verdicts as v
   where r.reconciler = v.reconciler and r.key = v.key and v.verdict in ('changed', 'conflict')
), cleared as (
  update "public"."t" as t set "owner" = null, "until" = null
    from verdicts as h
   where h.verdict in ('conflict', 'contested') and h.there and t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text and (t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || h.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true
)
select key, verdict from verdicts;
