-- For claim='row_lock': locks a claimed row for the handler's own transaction and reads it as it is now.
-- Fence: (reconciler, key, holder, term), the lease not expired. No row back: rows/locked_out.sql says why.
-- Index: rows_pkey, and the user's key; looked up by these alone, as in claim_fresh.sql.
select t."version"::text, t."tenant", t."id", t."state", t."changed_at", t."due_at", t."version", t."owner", t."until", t."amount" from "public"."t" as t
 where t."tenant" operator(pg_catalog.=) %(k1)s::text::uuid and t."id" operator(pg_catalog.=) %(k2)s::text::text and ((t."state" operator(pg_catalog.=) 'new'::stage and t."due_at" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()) or t."state" operator(pg_catalog.=) 'working'::stage) and (amount > 0
)) is true
   and (select r.state = 'held' and r.holder = %(holder)s and r.term = %(term)s and r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())
          from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = %(key)s limit 1)
   for no key update of t skip locked;
