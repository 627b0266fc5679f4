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
  select w.*, pg_catalog.row_number() over (order by trueup_null desc, trueup_t1) as trueup_n
    from (select * from ((select false as trueup_null, t."id"::text as trueup_key, t."id" as trueup_t1 from "public"."t" as t
        where t."state" operator(pg_catalog.=) 'new'::text order by t."id" limit %(window)s)) as every_state order by trueup_null desc, trueup_t1 limit %(window)s) as w
), fresh as materialized (
  select s.* from seen as s
   where not exists (select from "trueup".rows as r where r.reconciler = %(reconciler)s and r.key = s.trueup_key offset 0)
   order by s.trueup_n limit %(most)s
), weighed as materialized (
  select f.trueup_n, f.trueup_key, t.*, (select "trueup".term_floor()) + pg_catalog.nextval('"trueup".row_terms') as trueup_term
    from fresh as f, lateral (
    select t."state"::text as trueup_state, null::text as trueup_changed_at, t.xmin as trueup_seen, null::timestamptz as trueup_due, null::text as trueup_long_key, t."id" as trueup_t1, t."id" as trueup_k1, t."id" as trueup_c1, t."state" as trueup_c2, t."note" as trueup_c3, ((t."state" operator(pg_catalog.=) 'new'::text)) as trueup_free, coalesce(pg_catalog.octet_length(t."note"), 0)::bigint as trueup_bytes from "public"."t" as t where t."id" operator(pg_catalog.=) f.trueup_t1 limit 1 for no key update of t skip locked
  ) as t
   where t.trueup_free
), taken as materialized (
  select w.* from (select w.*, pg_catalog.sum(w.trueup_bytes) over (order by w.trueup_n, w.trueup_key rows unbounded preceding)::bigint - w.trueup_bytes as trueup_before
                     from weighed as w) as w
   where w.trueup_before < 67108864
), claimed as (
  insert into "trueup".rows as r (reconciler, key, whole_key, state, due_at, holder, term, occasion, attempt, was_state, was_changed_at, claimed_at, changed_at)
  select %(reconciler)s, k.trueup_key, k.trueup_long_key, case when false then 'resting' else 'held' end,
         coalesce(%(now)s::timestamptz, pg_catalog.now()) + pg_catalog.make_interval(secs => %(lease_for)s::float8), case when not false then %(holder)s::uuid end,
         k.trueup_term, k.trueup_term, (not false)::int, k.trueup_state, k.trueup_changed_at, coalesce(%(now)s::timestamptz, pg_catalog.now()), coalesce(%(now)s::timestamptz, pg_catalog.now())
    from taken as k
  on conflict (reconciler, key) do nothing
  returning r.key, r.state
), mine as materialized (
  select k.*, k.trueup_term as trueup_occasion, 1 as trueup_attempt, false as trueup_spent, false as trueup_outlived, coalesce(%(now)s::timestamptz, pg_catalog.now()) as trueup_claimed_at, k.trueup_state as trueup_was_state,
         k.trueup_changed_at as trueup_was_changed_at
    from taken as k
   where (k.trueup_key in (select key from claimed where state = 'held')) is true
), place as (
  select s.*, s.trueup_n - (select pg_catalog.count(*) from fresh as f where f.trueup_n <= s.trueup_n) as trueup_known
    from seen as s
   where s.trueup_n = case when (select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed) then (select pg_catalog.max(trueup_n) from taken)
                         when (select pg_catalog.count(*) from fresh) >= %(most)s then (select pg_catalog.max(trueup_n) from fresh)
                         else (select pg_catalog.max(trueup_n) from seen) end
)
select (select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed), (select pg_catalog.count(*) from seen) < %(window)s and (select pg_catalog.count(*) from fresh) < %(most)s and not (select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed),
       coalesce(place.trueup_known, 0), place.trueup_null, null::text, place.trueup_t1::text, c.trueup_key, c.trueup_term, c.trueup_occasion, c.trueup_attempt, c.trueup_spent, c.trueup_outlived, c.trueup_claimed_at, c.trueup_was_state, c.trueup_was_changed_at, c.trueup_seen::text, c.trueup_due, c.trueup_k1::text, c.trueup_c1, c.trueup_c2, c.trueup_c3
  from (select 1 as ok) as one
  left join place on true
  left join mine as c on true
 where one.ok = 1
 order by c.trueup_n;
