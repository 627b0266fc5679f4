-- Deletes the records of rows that no longer match this reconciler: another transaction has moved, changed or deleted them.
-- Of the due ones it looks at as many as a claim does, from the same end: records that a claim skips are removed here,
-- so the next claim gets further. Records of quarantined rows are deleted when the rows have left its states; they are checked a batch
-- at a time, from where the last pass ended (`after`), which is returned. Locked rows are left alone, and so
-- are `unread` ones, whose evaluation raises.
-- Index: rows_due and rows_set_aside; then the user's key and rows_pkey, row by row as in claim_fresh.sql.
with due as materialized (
  select r.key, coalesce(r.whole_key, r.key) as whole_key, r.term from "trueup".rows as r
   where r.reconciler = %(reconciler)s and r.state in ('held', 'resting') and r.due_at <= coalesce(%(now)s::timestamptz, pg_catalog.now())
   order by r.due_at, r.key limit %(window)s
), set_aside as materialized (
  select r.key, coalesce(r.whole_key, r.key) as whole_key, r.term, r.changed_at from "trueup".rows as r
   where r.reconciler = %(reconciler)s and r.state in ('quarantined', 'discarded')
     and (r.changed_at, r.key) > (coalesce(%(after)s::timestamptz, '-infinity'), %(after_key)s)
   order by r.changed_at, r.key limit %(window)s
), over as materialized (
  select r.key, r.term from due as r
   where case when r.key = any(%(unread)s::text[]) then false else (select ((t."state" operator(pg_catalog.=) 'new'::text)) from "public"."t" as t where t."id" operator(pg_catalog.=) r.whole_key::bigint limit 1) is not true end
  union all
  select r.key, r.term from set_aside as r
   where case when r.key = any(%(unread)s::text[]) then false else (select ((t."state" operator(pg_catalog.=) 'new'::text)) from "public"."t" as t where t."id" operator(pg_catalog.=) r.whole_key::bigint limit 1) is not true end
), locked as materialized (
  select o.key, r.reconciler from over as o, lateral (
    select r.reconciler, r.state, r.term, r.due_at from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = o.key limit 1 for update skip locked
  ) as r
   where r.term = o.term and (r.state in ('quarantined', 'discarded') or r.due_at <= coalesce(%(now)s::timestamptz, pg_catalog.now()))
), gone as (
  delete from "trueup".rows as r using locked
   where r.reconciler = locked.reconciler and r.key = locked.key
  returning 1
)
select (select pg_catalog.count(*) from gone), last.changed_at, last.key
  from (select 1) as one
  left join (select changed_at, key from set_aside order by changed_at desc, key desc limit 1) as last
    on (select pg_catalog.count(*) from set_aside) >= %(window)s;
