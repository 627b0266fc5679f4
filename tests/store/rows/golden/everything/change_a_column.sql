-- settle: held -> done, and the row is written (To, Stay); resting, when it would be claimed again immediately, or when this is
-- the write after a failed attempt (`error`).
-- Fence: (reconciler, key, holder, term), the lease not expired. Compare-and-set on the row: its state, and its version, time of
-- change or xmin as they were at the claim. Each row is judged separately: `changed`; `conflict`, when another transaction changed it
-- first; `contested`, when one did and the row still matches this reconciler; `undone`, when it is as it was and yet not changed, which
-- only a trigger can do; `busy`, when another session has locked it (this statement never waits: try again). After the last three the
-- claim is still held. A key that does not come back was lost.
-- Fails for all rows when a trigger has put the state of one back that it had (only of a table with triggers).
-- Index: rows_pkey, and the user's key, row by row as in claim_fresh.sql. A record is found again by the reconciler that was read with
-- it: for a constant, a planner without statistics would read all records of the reconciler for each row. Locks the user's row before
-- its record, and records in the given order, which is that of the keys when there are several: so two statements cannot wait for one
-- another.
with mine as (
  select * from unnest(%(key)s::text[], %(term)s::bigint[], %(k1)s::text[], %(k2)s::text[], %(state)s::text[], %(seen_state)s::text[], %(seen)s::text[], %(rest_for)s::float8[], %(attempt)s::int[], %(error)s::text[], %(reason)s::text[], %(c1)s::text[]) as m(key, term, k1, k2, state, seen_state, seen, rest_for, attempt, error, reason, c1)
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
), changed as (
  update "public"."t" as t set "state" = h.state::stage, "amount" = h.c1::numeric, "changed_at" = (coalesce(%(now)s::timestamptz, pg_catalog.now()) at time zone 'utc'), "version" = coalesce(t."version", 0) + 1, "owner" = null, "until" = null
    from held as h
   where h.there and t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text and (t."state" operator(pg_catalog.=) h.seen_state::stage and (t."version" operator(pg_catalog.=) h.seen::integer or t."version" is null and h.seen is null) and t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || h.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true
  returning h.key
), verdicts as materialized (
  select h.*, case when (h.key in (select key from changed)) is true then 'changed'
                   when not h.there and exists (select from "public"."t" as t where t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text) then 'busy'
                   when (h.key in (select key from there where as_left)) is true then 'undone'
                   when (h.key in (select key from there where chosen)) is true then 'contested'
                   else 'conflict' end as verdict
    from held as h
), rested as (
  update "trueup".rows as r
     set state = 'resting', holder = null, due_at = coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => v.rest_for), attempt = greatest(0, coalesce(v.attempt, 0)),
         crashes = case when v.error is null then 0 else r.crashes end, alone = false, started = false,
         occasion = case when v.error is not null then r.occasion end, changed_at = coalesce(%(now)s::timestamptz, pg_catalog.now()), reason = v.reason,
         errors = case when v.error is null then '[]'
                       else case when pg_catalog.jsonb_array_length(r.errors) >= %(most_errors)s then r.errors - 1 else r.errors end || v.error::jsonb end
    from verdicts as v
   where r.reconciler = v.reconciler and r.key = v.key and v.verdict = 'changed' and v.rest_for is not null
), gone as (
  delete from "trueup".rows as r using verdicts as v
   where r.reconciler = v.reconciler and r.key = v.key and (v.verdict = 'conflict' or v.verdict = 'changed' and v.rest_for is null)
), cleared as (
  update "public"."t" as t set "owner" = null, "until" = null
    from verdicts as h
   where h.verdict in ('conflict', 'contested') and h.there and t."tenant" operator(pg_catalog.=) h.k1::uuid and t."id" operator(pg_catalog.=) h.k2::text and (t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || h.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true
)
select key, verdict from verdicts;
