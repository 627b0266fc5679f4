-- Why a claimed row could not be locked: `lost`, its claim is gone; `busy`, another session has locked it; `gone`, it has changed since
-- the claim.
-- Index: rows_pkey, and the user's key; looked up by these alone, as in claim_fresh.sql.
select case when (select r.state = 'held' and r.holder = %(holder)s and r.term = %(term)s and r.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())
                    from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = %(key)s limit 1) is not true then 'lost'
            when (select ((t."state" operator(pg_catalog.=) 'new'::text)) from "public"."t" as t where t."id" operator(pg_catalog.=) %(k1)s::text::bigint limit 1) then 'busy' else 'gone' end;
