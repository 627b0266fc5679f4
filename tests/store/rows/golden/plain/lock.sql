-- For claim='row_lock': locks a claimed row for the handler's own transaction and reads it as it is now.
-- Fence: (reconciler, key, holder, term), the lease not expired. No row back: rows/locked_out.sql says why.
-- Index: rows_pkey, and the user's key; looked up by these alone, as in claim_fresh.sql.
select t.xmin::text, t."id", t."state", t."note" from "public"."t" as t
 where t."id" operator(pg_catalog.=) %(k1)s::text::bigint and ((t."state" operator(pg_catalog.=) 'new'::text)) is true
   and (select r.state = 'held' and r.holder = %(holder)s and r.term = %(term)s and r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())
          from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = %(key)s limit 1)
   for no key update of t skip locked;
