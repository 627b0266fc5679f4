-- settle: as rest.sql, for rows that the claim has marked: what it wrote (claimed_as, the user's own lease columns) is undone.
-- Fence: (reconciler, key, holder, term), the lease not expired; the row is written only while it is as the claim left it.
-- Index: rows_pkey, and the user's key. Locks as in change.sql.
with mine as (
  select * from unnest(%(key)s::text[], %(term)s::bigint[], %(k1)s::text[], %(k2)s::text[], %(seen_state)s::text[], %(seen)s::text[], %(was_state)s::text[], %(was_changed_at)s::text[], %(state)s::text[], %(delay)s::float8[], %(attempt)s::int[], %(error)s::text[], %(reason)s::text[], %(proposed)s::text[], %(ongoing)s::boolean[]) as m(key, term, k1, k2, seen_state, seen, was_state, was_changed_at, state, delay, attempt, error, reason, proposed, ongoing)
), there as materialized (
  select m.key, t.* from mine as m, lateral (
    select (t."state" operator(pg_catalog.=) m.seen_state::stage and (t."version" operator(pg_catalog.=) m.seen::integer or t."version" is null and m.seen is null) and t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || m.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true as as_left, ((t."state" operator(pg_catalog.=) 'new'::stage and t."due_at" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()) or t."state" operator(pg_catalog.=) 'working'::stage) and (amount > 0
)) is true as chosen from "public"."t" as t where t."tenant" operator(pg_catalog.=) m.k1::uuid and t."id" operator(pg_catalog.=) m.k2::text limit 1 for no key update of t skip locked
  ) as t
), held as materialized (
  select m.*, r.reconciler, (m.key in (select key from there)) is true as there
    from mine as m, lateral (
    select r.reconciler, r.state, r.holder, r.term, r.due_at from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update
  ) as r
   where r.state = 'held' and r.holder = %(holder)s and r.term = m.term and r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())
), back as (
  update "public"."t" as t set "state" = h.was_state::stage, "changed_at" = h.was_changed_at::timestamp without time zone, "version" = coalesce(t."version", 0) + 1, "owner" = null, "until" = null
    from held as h
   where h.there and t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text and (t."state" operator(pg_catalog.=) h.seen_state::stage and (t."version" operator(pg_catalog.=) h.seen::integer or t."version" is null and h.seen is null) and t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || h.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true
), verdicts as materialized (
  select h.*, case when not h.there and exists (select from "public"."t" as t where t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text) then 'busy' else 'changed' end as verdict from held as h
), rested as (
  update "trueup".rows as r set state = m.state, holder = null,
         due_at = case when m.state = 'resting' then coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => m.delay) else 'infinity' end,
         attempt = greatest(0, coalesce(m.attempt, r.attempt)),
         crashes = case when m.error is null then 0 else r.crashes end, alone = false, started = false,
         occasion = case when m.ongoing then r.occasion end, changed_at = coalesce(%(now)s::timestamptz, pg_catalog.now()), reason = m.reason,
         errors = case when m.error is null then case when m.attempt = 0 then '[]' else r.errors end
                       else case when pg_catalog.jsonb_array_length(r.errors) >= %(most_errors)s then r.errors - 1 else r.errors end || m.error::jsonb end,
         proposed = coalesce(m.proposed::jsonb, r.proposed)
    from verdicts as m
   where r.reconciler = m.reconciler and r.key = m.key and m.state <> 'gone' and m.verdict = 'changed'
), gone as (
  delete from "trueup".rows as r using verdicts as m
   where r.reconciler = m.reconciler and r.key = m.key and m.state = 'gone' and m.verdict = 'changed'
)
select key, verdict from verdicts;
