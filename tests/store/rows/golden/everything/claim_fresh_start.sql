-- claim: rows without a record -> held, in the declared order, up to a number.
-- Fence made: (reconciler, key, holder, term). State, staleness and due time are checked again on the row that was locked.
-- Walks the user's table from the position of the sweep, a window at a time, so that a claim costs the same however many rows
-- were visited before. Index: rows_pkey, and one of the user's own (IndexMissing names a suitable one).
-- Single rows are looked up by their keys alone (`limit 1`, `offset 0`: nothing else can be pushed in there), and what must be
-- compared with all of a batch is hashed (`in (...) is true`): with statistics from before the backlog the planner would not.
-- Locks the user's row before its record, as every statement over both does: so they cannot wait for one another.
-- A row that a trigger keeps from being marked makes the whole claim fail (division by zero), as one that raises does: rows/mark.sql then
-- finds it. A row in the working state (`claimed_as`) without a record may be held by another program: it only gets a record, as
-- resting for the length of a lease, and is claimed if it is still there then.
-- Claims rows of 64 MiB together at most, and one more: the answer must fit into the worker's memory. It says whether rows were left out.
-- `where=` is checked as the table is walked, or, where it raises for a row (_guarded.sql), for rows that have no record.
with seen as materialized (
  select w.*, pg_catalog.row_number() over (order by trueup_null desc, trueup_order, trueup_t1, trueup_t2) as trueup_n
    from (select * from ((select false as trueup_null, case when pg_catalog.octet_length(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text) > 1000 then pg_catalog.left(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text, 100) || '…sha256:'::text || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text, 'UTF8'::name)), 'hex'::text) else pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text end as trueup_key, t."tenant" as trueup_t1, t."id" as trueup_t2, t."due_at" as trueup_order from "public"."t" as t
        where t."state" operator(pg_catalog.=) 'new'::stage and t."due_at" is not null and t."due_at" operator(pg_catalog.<=) coalesce(%(cut_off)s::timestamptz, coalesce(%(now)s::timestamptz, pg_catalog.now())) and (amount > 0
) and (t."until" is null or t."until" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now())) order by t."due_at", t."tenant", t."id" limit %(window)s)
     union all (select true as trueup_null, case when pg_catalog.octet_length(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text) > 1000 then pg_catalog.left(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text, 100) || '…sha256:'::text || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text, 'UTF8'::name)), 'hex'::text) else pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text end as trueup_key, t."tenant" as trueup_t1, t."id" as trueup_t2, t."due_at" as trueup_order from "public"."t" as t
        where t."state" operator(pg_catalog.=) 'working'::stage and t."due_at" is null and (amount > 0
) and (t."until" is null or t."until" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now())) order by t."tenant", t."id" limit %(window)s)
     union all (select false as trueup_null, case when pg_catalog.octet_length(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text) > 1000 then pg_catalog.left(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text, 100) || '…sha256:'::text || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text, 'UTF8'::name)), 'hex'::text) else pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text end as trueup_key, t."tenant" as trueup_t1, t."id" as trueup_t2, t."due_at" as trueup_order from "public"."t" as t
        where t."state" operator(pg_catalog.=) 'working'::stage and t."due_at" is not null and (amount > 0
) and (t."until" is null or t."until" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now())) order by t."due_at", t."tenant", t."id" limit %(window)s)) as every_state order by trueup_null desc, trueup_order, trueup_t1, trueup_t2 limit %(window)s) as w
), fresh as materialized (
  select s.* from seen as s
   where not exists (select from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = s.trueup_key offset 0)
   order by s.trueup_n limit %(most)s
), weighed as materialized (
  select f.trueup_n, f.trueup_key, t.*, (select "trueup".term_floor()) + pg_catalog.nextval('"trueup".row_terms') as trueup_term
    from fresh as f, lateral (
    select t."state"::text as trueup_state, t."changed_at"::text as trueup_changed_at, t."version" as trueup_seen, t."due_at"::timestamptz as trueup_due, case when pg_catalog.octet_length(pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text) > 1000 then pg_catalog.jsonb_build_array(t."tenant"::text, t."id"::text)::text end as trueup_long_key, t."tenant" as trueup_t1, t."id" as trueup_t2, t."tenant" as trueup_k1, t."id" as trueup_k2, t."tenant" as trueup_c1, t."id" as trueup_c2, t."state" as trueup_c3, t."changed_at" as trueup_c4, t."due_at" as trueup_c5, t."version" as trueup_c6, t."owner" as trueup_c7, t."until" as trueup_c8, t."amount" as trueup_c9, ((t."state" operator(pg_catalog.=) 'new'::stage and t."due_at" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()) or t."state" operator(pg_catalog.=) 'working'::stage) and (amount > 0
) and (t."until" is null or t."until" operator(pg_catalog.<=) coalesce(%(now)s::timestamptz, pg_catalog.now()))) as trueup_free, coalesce(pg_catalog.octet_length(t."owner"), 0)::bigint as trueup_bytes from "public"."t" as t where t."tenant" operator(pg_catalog.=) f.trueup_t1 and t."id" operator(pg_catalog.=) f.trueup_t2 limit 1 for no key update of t skip locked
  ) as t
   where t.trueup_free
), taken as materialized (
  select w.* from (select w.*, pg_catalog.sum(w.trueup_bytes) over (order by w.trueup_n, w.trueup_key rows unbounded preceding)::bigint - w.trueup_bytes as trueup_before
                     from weighed as w) as w
   where w.trueup_before < 67108864
), claimed as (
  insert into "trueup".rows as r (reconciler, key, whole_key, state, due_at, holder, term, occasion, attempt, was_state, was_changed_at, claimed_at, changed_at)
  select %(reconciler)s, k.trueup_key, k.trueup_long_key, case when (k.trueup_state = 'working') then 'resting' else 'held' end,
         coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => %(lease_for)s::float8), case when not (k.trueup_state = 'working') then %(holder)s::uuid end,
         k.trueup_term, k.trueup_term, (not (k.trueup_state = 'working'))::int, case when k.trueup_state = 'working' then 'new' else k.trueup_state end, k.trueup_changed_at, coalesce(%(now)s::timestamptz, pg_catalog.now()), coalesce(%(now)s::timestamptz, pg_catalog.now())
    from taken as k
  on conflict (reconciler, key) do nothing
  returning r.key, r.state
), mine as materialized (
  select k.*, k.trueup_term as trueup_occasion, 1 as trueup_attempt, false as trueup_spent, false as trueup_outlived, coalesce(%(now)s::timestamptz, pg_catalog.now()) as trueup_claimed_at, case when k.trueup_state = 'working' then 'new' else k.trueup_state end as trueup_was_state,
         k.trueup_changed_at as trueup_was_changed_at
    from taken as k
   where (k.trueup_key in (select key from claimed where state = 'held')) is true
), moved as (
  update "public"."t" as t set "state" = 'working'::stage, "changed_at" = (coalesce(%(now)s::timestamptz, pg_catalog.now()) at time zone 'utc'), "version" = coalesce(t."version", 0) + 1, "owner" = (%(owner)s::text || '/' || c.trueup_term::text), "until" = coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => %(lease_for)s::float8)
    from mine as c
   where t."tenant" operator(pg_catalog.=) c.trueup_t1 and t."id" operator(pg_catalog.=) c.trueup_t2
  returning c.trueup_key, c.trueup_term, c.trueup_occasion, c.trueup_attempt, c.trueup_spent, c.trueup_outlived, c.trueup_claimed_at, c.trueup_was_state, c.trueup_was_changed_at, c.trueup_n, c.trueup_due, t."version" as trueup_seen, t."tenant" as trueup_k1, t."id" as trueup_k2, t."tenant" as trueup_c1, t."id" as trueup_c2, t."state" as trueup_c3, t."changed_at" as trueup_c4, t."due_at" as trueup_c5, t."version" as trueup_c6, t."owner" as trueup_c7, t."until" as trueup_c8, t."amount" as trueup_c9
), place as (
  select s.*, s.trueup_n - (select pg_catalog.count(*) from fresh as f where f.trueup_n <= s.trueup_n) as trueup_known
    from seen as s
   where s.trueup_n = case when (select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed) then (select pg_catalog.max(trueup_n) from taken)
                         when (select pg_catalog.count(*) from fresh) >= %(most)s then (select pg_catalog.max(trueup_n) from fresh)
                         else (select pg_catalog.max(trueup_n) from seen) end
)
select (select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed), (select pg_catalog.count(*) from seen) < %(window)s and (select pg_catalog.count(*) from fresh) < %(most)s and not (select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed),
       coalesce(place.trueup_known, 0), place.trueup_null, place.trueup_order::text, place.trueup_t1::text, place.trueup_t2::text, c.trueup_key, c.trueup_term, c.trueup_occasion, c.trueup_attempt, c.trueup_spent, c.trueup_outlived, c.trueup_claimed_at, c.trueup_was_state, c.trueup_was_changed_at, c.trueup_seen::text, c.trueup_due, c.trueup_k1::text, c.trueup_k2::text, c.trueup_c1, c.trueup_c2, c.trueup_c3, c.trueup_c4, c.trueup_c5, c.trueup_c6, c.trueup_c7, c.trueup_c8, c.trueup_c9
  from (select 1 / ((select pg_catalog.count(*) from moved) >= (select pg_catalog.count(*) from mine))::int as ok, pg_catalog.set_config('datestyle', 'ISO', false), pg_catalog.set_config('intervalstyle', 'postgres', true), pg_catalog.set_config('extra_float_digits', '1', true)) as one
  left join place on true
  left join moved as c on true
 where one.ok = 1
 order by c.trueup_n;
