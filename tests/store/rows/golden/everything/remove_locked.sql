-- For claim='row_lock': deletes a row that this transaction has locked, as change_locked.sql writes one. Index: the user's key.
with written as (
  delete from "public"."t" as t using (select %(seen_state)s::text as seen_state, %(seen)s::text as seen) as h
   where t."tenant" operator(pg_catalog.=) %(k1)s::text::uuid and t."id" operator(pg_catalog.=) %(k2)s::text::text and (t."state" operator(pg_catalog.=) h.seen_state::stage and (t."version" operator(pg_catalog.=) h.seen::integer or t."version" is null and h.seen is null) and t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || h.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true
  returning 1
)
select (case when pg_catalog.count(*) > 0 then '1' else 'trueup: the row is not as it was read' end)::int from written;
