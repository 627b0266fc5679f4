-- How many rows match a reconciler, up to a number: those that are not held, resting or quarantined, and those due again;
-- or (`late_by`) only those that have been due or stale for longer than that.
-- Index: one of the user's own, and rows_pkey.
select pg_catalog.count(*) from (
  select from "public"."t" as t
   where (t."state" operator(pg_catalog.=) 'new'::stage and t."due_at" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()) or t."state" operator(pg_catalog.=) 'working'::stage) and (amount > 0
) and (t."until" is null or t."until" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now())) and (%(late_by)s::float8 is null or t."due_at"::timestamptz < coalesce(%(now)s::timestamptz, pg_catalog.now()) - pg_catalog.make_interval(secs => %(late_by)s::float8))
     and not exists (select from "trueup".rows as r
                      where r.reconciler = %(reconciler)s and r.key = case when pg_catalog.octet_length(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text) > 1000 then pg_catalog.left(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text, 100) || '…sha256:'::text || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text, 'UTF8'::name)), 'hex'::text) else pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text end and (r.state in ('quarantined', 'discarded') or r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())) offset 0)
   limit %(most)s) as w;
