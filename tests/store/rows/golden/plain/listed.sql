-- The rows that match a reconciler, in its order: what a dry run shows. Index: one of the user's own, and rows_pkey.
select t."id"::text, t."state"::text, null::timestamptz, coalesce(k.trueup_attempt, 0), t."id" as trueup_c1, t."state" as trueup_c2, t."note" as trueup_c3
  from "public"."t" as t
  -- No name in here may be one of the user's columns: `where=` names those without a table.
  left join lateral (select r.attempt as trueup_attempt, r.state as trueup_known, r.due_at as trueup_due_at
                       from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = t."id"::text limit 1) as k on true
 where (t."state" operator(pg_catalog.=) 'new'::text) and (k.trueup_known is null or k.trueup_known in ('held', 'resting') and k.trueup_due_at <= coalesce(%(now)s::timestamptz, pg_catalog.now()))
 order by t."id" limit %(most)s;
