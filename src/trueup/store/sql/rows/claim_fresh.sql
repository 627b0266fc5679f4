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
  select w.*, row_number() over (order by {sorted}) as trueup_n
    from (select * from ({branches}) as every_state order by {sorted} limit %(window)s) as w
), fresh as materialized (
  select s.* from seen as s
   where not exists (select from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = s.trueup_key offset 0){passes}
   order by s.trueup_n limit %(most)s
), {locked} as materialized (
  select f.trueup_n, f.trueup_key, t.*, (select {schema}.term_floor()) + nextval('{schema}.row_terms') as trueup_term
    from fresh as f, lateral (
    select {about}, {columns}, ({free}) as trueup_free{weighs} from {table} as t where {t_is_f} limit 1 for {lock} of t skip locked
  ) as t
   where t.trueup_free
), {bounded}claimed as (
  insert into {schema}.rows as r (reconciler, key, whole_key, state, due_at, holder, term, occasion, attempt, was_state, was_changed_at, claimed_at, changed_at)
  select %(reconciler)s, k.trueup_key, {long_key}, case when {left_behind} then 'resting' else 'held' end,
         {now} + make_interval(secs => %(lease_for)s::float8), case when not {left_behind} then %(holder)s::uuid end,
         k.trueup_term, k.trueup_term, (not {left_behind})::int, {fresh_state}, k.trueup_changed_at, {now}, {now}
    from taken as k
  on conflict (reconciler, key) do nothing
  returning r.key, r.state
), mine as materialized (
  select k.*, k.trueup_term as trueup_occasion, 1 as trueup_attempt, false as trueup_spent, false as trueup_outlived, {now} as trueup_claimed_at, {fresh_state} as trueup_was_state,
         k.trueup_changed_at as trueup_was_changed_at
    from taken as k
   where (k.trueup_key in (select key from claimed where state = 'held')) is true
){moved}, place as (
  select s.*, s.trueup_n - (select count(*) from fresh as f where f.trueup_n <= s.trueup_n) as trueup_known
    from seen as s
   where s.trueup_n = case when {cut} then (select max(trueup_n) from taken)
                         when (select count(*) from fresh) >= %(most)s then (select max(trueup_n) from fresh)
                         else (select max(trueup_n) from seen) end
)
select {cut}, (select count(*) from seen) < %(window)s and (select count(*) from fresh) < %(most)s and not {cut},
       coalesce(place.trueup_known, 0), place.trueup_null, {place}, {handed}
  from (select {all_marked}) as one
  left join place on true
  left join {given} as c on true
 where one.ok = 1
 order by c.trueup_n;
