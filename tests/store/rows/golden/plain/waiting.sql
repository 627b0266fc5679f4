-- How many rows match a reconciler, up to a number: those that are not held, resting or quarantined, and those due again;
-- or (`late_by`) only those that have been due or stale for longer than that.
-- Index: one of the user's own, and rows_pkey.
select pg_catalog.count(*) from (
  select from "public"."t" as t
   where (t."state" operator(pg_catalog.=) 'new'::text) and (%(late_by)s::float8 is null or null::timestamptz < coalesce(%(now)s::timestamptz, pg_catalog.now()) - pg_catalog.make_interval(secs => %(late_by)s::float8))
     and not exists (select from "trueup".rows as r
                      where r.reconciler = %(reconciler)s and r.key = t."id"::text and (r.state in ('quarantined', 'discarded') or r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())) offset 0)
   limit %(most)s) as w;
