-- claim: rows that are due again -> held, longest due first, from the position of the sweep. These are resting rows, and rows
-- whose holder's lease has expired. Those of the latter that may have killed their process (`suspects`: a handler was running for
-- them, or it was not the first process that died with them) are claimed separately, to be run one at a time.
-- Fence made: (reconciler, key, holder, term).
-- An attempt that ended with its process counts only if the row was alone: the others were merely held by the same process. An attempt
-- whose lease a living process lost counts, too: its handler took too long, or blocked the process.
-- Index: rows_due, in its order; then the user's key and rows_pkey, row by row as in claim_fresh.sql.
-- Locks the user's row before its record; locked rows are skipped. Claims 64 MiB at most, as claim_fresh.sql does.
with weighed as materialized (
  select r.*, t.*
    from (select r.key as trueup_key, coalesce(r.whole_key, r.key) as trueup_whole_key, r.due_at as trueup_n
            from "trueup".rows as r
           where r.reconciler = %(reconciler)s and r.state in ('held', 'resting') and (r.state = 'held' and (r.started or r.crashes > 0)) = %(suspects)s
             and r.due_at <= least(coalesce(%(now)s::timestamptz, pg_catalog.now()), %(cut_off)s::timestamptz) and (r.due_at, r.key) > (%(after_due)s::timestamptz, %(after_key)s::text)
           order by r.due_at, r.key limit %(window)s) as r, lateral (
    select t."state"::text as trueup_state, t."changed_at"::text as trueup_changed_at, t."version" as trueup_seen, t."due_at"::timestamptz as trueup_due, case when pg_catalog.octet_length(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text) > 1000 then pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text end as trueup_long_key, t."tenant" as trueup_t1, t."id" as trueup_t2, t."tenant" as trueup_k1, t."id" as trueup_k2, t."tenant" as trueup_c1, t."id" as trueup_c2, t."state" as trueup_c3, t."changed_at" as trueup_c4, t."due_at" as trueup_c5, t."version" as trueup_c6, t."owner" as trueup_c7, t."until" as trueup_c8, t."amount" as trueup_c9, ((t."state" operator(pg_catalog.=) 'new'::stage and t."due_at" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()) or t."state" operator(pg_catalog.=) 'working'::stage) and (amount > 0
) and (t."until" is null or t."until" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()))) as trueup_free, coalesce(pg_catalog.octet_length(t."owner"), 0)::bigint as trueup_bytes from "public"."t" as t where t."tenant" operator(pg_catalog.=) (r.trueup_whole_key::jsonb ->> 0)::uuid and t."id" operator(pg_catalog.=) (r.trueup_whole_key::jsonb ->> 1)::text limit 1 for no key update of t skip locked
  ) as t
   where t.trueup_free
   order by r.trueup_n, r.trueup_key limit %(most)s
), taken as materialized (
  select w.* from (select w.*, pg_catalog.sum(w.trueup_bytes) over (order by w.trueup_n, w.trueup_key rows unbounded preceding)::bigint - w.trueup_bytes as trueup_before
                     from weighed as w) as w
   where w.trueup_before < 67108864
), known as materialized (
  select k.*, r.reconciler as trueup_reconciler, (select "trueup".term_floor()) + pg_catalog.nextval('"trueup".row_terms') as trueup_new_term,
         r.state = 'held' as trueup_left, r.alone as trueup_alone, r.attempt as trueup_attempt, r.started as trueup_started,
         r.was_state as trueup_was_state, r.was_changed_at as trueup_was_changed_at,
         r.state = 'held' and (r.holder = %(holder)s or exists (
           select from "trueup".workers as w
            where w.holder = r.holder and w.renewed_at > r.due_at - pg_catalog.make_interval(secs => %(lease_for)s::float8 * 0.4::float8))) as trueup_outlived
    from taken as k, lateral (
    select r.* from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = k.trueup_key limit 1 for update skip locked
  ) as r
   where r.state in ('held', 'resting') and r.due_at <= coalesce(%(now)s::timestamptz, pg_catalog.now()) and (r.state = 'held' and (r.started or r.crashes > 0)) = %(suspects)s and not (k.trueup_state = 'working' and exists (
           select from "trueup".rows as o
            where o.reconciler = any(array(select c.name from "trueup".reconcilers as c where c.place = %(place)s and c.name <> %(reconciler)s))
              and o.key = k.trueup_key and o.state = 'held' and o.due_at > coalesce(%(now)s::timestamptz, pg_catalog.now())))
), judged as materialized (
  select k.*, not k.trueup_left or k.trueup_alone or k.trueup_started and k.trueup_outlived as trueup_counts from known as k
), mine as (
  update "trueup".rows as r
     set state = 'held', holder = %(holder)s, due_at = coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => %(lease_for)s::float8), term = k.trueup_new_term,
         occasion = coalesce(r.occasion, k.trueup_new_term),
         attempt = case when k.trueup_counts then least(r.attempt + 1, %(max_attempts)s) else greatest(r.attempt, 1) end,
         crashes = r.crashes + (k.trueup_left and not k.trueup_outlived)::int, alone = %(suspects)s, started = false,
         was_state = case when k.trueup_state = 'working' then coalesce(k.trueup_was_state, 'new') else k.trueup_state end, was_changed_at = case when k.trueup_state = 'working' then coalesce(k.trueup_was_changed_at, k.trueup_changed_at) else k.trueup_changed_at end, claimed_at = coalesce(%(now)s::timestamptz, pg_catalog.now()), changed_at = coalesce(%(now)s::timestamptz, pg_catalog.now())
    from judged as k
   where r.reconciler = k.trueup_reconciler and r.key = k.trueup_key
  returning r.key as trueup_key, r.term as trueup_term, r.occasion as trueup_occasion, r.attempt as trueup_attempt,
            k.trueup_left and k.trueup_counts and k.trueup_attempt >= %(max_attempts)s as trueup_spent, k.trueup_outlived,
            r.claimed_at as trueup_claimed_at, r.was_state as trueup_was_state, r.was_changed_at as trueup_was_changed_at,
            k.trueup_n, k.trueup_t1, k.trueup_t2, k.trueup_seen, k.trueup_due, k.trueup_k1, k.trueup_k2, k.trueup_c1, k.trueup_c2, k.trueup_c3, k.trueup_c4, k.trueup_c5, k.trueup_c6, k.trueup_c7, k.trueup_c8, k.trueup_c9
), moved as (
  update "public"."t" as t set "state" = 'working'::stage, "changed_at" = (coalesce(%(now)s::timestamptz, pg_catalog.now()) at time zone 'utc'), "version" = coalesce(t."version", 0) + 1, "owner" = (%(owner)s::text || '/' || c.trueup_term::text), "until" = coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => %(lease_for)s::float8)
    from mine as c
   where t."tenant" operator(pg_catalog.=) c.trueup_t1 and t."id" operator(pg_catalog.=) c.trueup_t2
  returning c.trueup_key, c.trueup_term, c.trueup_occasion, c.trueup_attempt, c.trueup_spent, c.trueup_outlived, c.trueup_claimed_at, c.trueup_was_state, c.trueup_was_changed_at, c.trueup_n, c.trueup_due, t."version" as trueup_seen, t."tenant" as trueup_k1, t."id" as trueup_k2, t."tenant" as trueup_c1, t."id" as trueup_c2, t."state" as trueup_c3, t."changed_at" as trueup_c4, t."due_at" as trueup_c5, t."version" as trueup_c6, t."owner" as trueup_c7, t."until" as trueup_c8, t."amount" as trueup_c9
), place as (
  (select k.trueup_n as due_at, k.trueup_key as key from taken as k
    where (select pg_catalog.count(*) from taken) >= %(most)s or (select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed) order by k.trueup_n desc, k.trueup_key desc limit 1)
  union all
  (select r.due_at, r.key from "trueup".rows as r
    where (select pg_catalog.count(*) from taken) < %(most)s and not (select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed) and r.reconciler = %(reconciler)s and r.state in ('held', 'resting') and (r.state = 'held' and (r.started or r.crashes > 0)) = %(suspects)s
             and r.due_at <= least(coalesce(%(now)s::timestamptz, pg_catalog.now()), %(cut_off)s::timestamptz) and (r.due_at, r.key) > (%(after_due)s::timestamptz, %(after_key)s::text)
    order by r.due_at, r.key offset %(window)s - 1 limit 1)
)
select (select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed), place.due_at, place.key, c.trueup_key, c.trueup_term, c.trueup_occasion, c.trueup_attempt, c.trueup_spent, c.trueup_outlived, c.trueup_claimed_at, c.trueup_was_state, c.trueup_was_changed_at, c.trueup_seen::text, c.trueup_due, c.trueup_k1::text, c.trueup_k2::text, c.trueup_c1, c.trueup_c2, c.trueup_c3, c.trueup_c4, c.trueup_c5, c.trueup_c6, c.trueup_c7, c.trueup_c8, c.trueup_c9
  from (select 1 / ((select pg_catalog.count(*) from moved) >= (select pg_catalog.count(*) from mine))::int as ok, pg_catalog.set_config('datestyle', 'ISO', false), pg_catalog.set_config('intervalstyle', 'postgres', true), pg_catalog.set_config('extra_float_digits', '1', true)) as one
  left join place on true
  left join moved as c on true
 where one.ok = 1
 order by c.trueup_n, c.trueup_key;
