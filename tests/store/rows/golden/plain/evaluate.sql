-- Evaluates `where=`, and reads what a claim reads, for these rows: to find those that raise, with rows/one_by_one.sql.
-- Returns whether each row is free; one that is gone does not come back. Locks nothing. Index: the user's key.
select m.key, pg_catalog.concat(pg_catalog.left((t.*)::text, 0), t.trueup_free::text) as verdict
  from unnest(%(key)s::text[], %(whole_key)s::text[]) as m(key, whole_key), lateral (
    select ((t."state" operator(pg_catalog.=) 'new'::text)) is true as trueup_free, t."state"::text as trueup_state, null::text as trueup_changed_at, t.xmin as trueup_seen, null::timestamptz as trueup_due, null::text as trueup_long_key, t."id" as trueup_t1, t."id" as trueup_k1, t."id" as trueup_c1, t."state" as trueup_c2, t."note" as trueup_c3 from "public"."t" as t where t."id" operator(pg_catalog.=) m.whole_key::bigint limit 1
  ) as t;
