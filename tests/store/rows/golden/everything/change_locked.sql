-- For claim='row_lock': writes the outcome (To, Stay) to a row that this transaction has locked. Compare-and-set as in change.sql: if
-- nothing is written, the handler has changed the row itself. That is an error, so that a commit in the same message does not happen.
-- The error is a cast of a text that is no number: no trigger raises the same one by chance. The record is settled after the commit. Index: the user's key.
with written as (
  update "public"."t" as t set "state" = %(state)s::text::stage, "changed_at" = (coalesce(%(now)s::timestamptz, pg_catalog.now()) at time zone 'utc'), "version" = coalesce(t."version", 0) + 1, "owner" = null, "until" = null from (select %(seen_state)s::text as seen_state, %(seen)s::text as seen) as h
   where t."tenant" operator(pg_catalog.=) %(k1)s::text::uuid and t."id" operator(pg_catalog.=) %(k2)s::text::text and (t."state" operator(pg_catalog.=) h.seen_state::stage and (t."version" operator(pg_catalog.=) h.seen::integer or t."version" is null and h.seen is null) and t."owner" operator(pg_catalog.=) (%(owner)s::text || '/' || h.term::text) and t."until" operator(pg_catalog.>) coalesce(%(now)s::timestamptz, pg_catalog.now())) is true
  returning 1
)
select (case when pg_catalog.count(*) > 0 then '1' else 'trueup: the row is not as it was read' end)::int from written;
