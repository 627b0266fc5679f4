-- The rows that a claim walks past from its position on, whether or not `where=` chooses them, and what is known about them.
-- Locks nothing. Index: rows_pkey, and one of the user's own, as for claim_fresh.sql.
with seen as materialized (
  select w.*, pg_catalog.row_number() over (order by trueup_null desc, trueup_t1) as trueup_n
    from (select * from ((select false as trueup_null, t."id"::text as trueup_key, t."id" as trueup_t1 from "public"."t" as t
        where t."state" operator(pg_catalog.=) 'new'::text and (t."id") operator(pg_catalog.>) (%(after_1)s::text::bigint) order by t."id" limit %(window)s)) as every_state order by trueup_null desc, trueup_t1 limit %(window)s) as w
)
select place.trueup_key, t.trueup_long_key, t.trueup_state, r.attempt, r.term, r.state, r.due_at <= coalesce(%(now)s::timestamptz, pg_catalog.now()), pg_catalog.jsonb_extract_path_text(r.errors, '-1', 'type'),
       place.trueup_null, null::text, place.trueup_t1::text
  from seen as place
  cross join lateral (select null::text as trueup_long_key, t."state"::text as trueup_state from "public"."t" as t where t."id" operator(pg_catalog.=) place.trueup_t1 limit 1) as t
  left join lateral (
    select r.attempt, r.term, r.state, r.due_at, r.errors from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = place.trueup_key limit 1
  ) as r on true
 order by place.trueup_n;
