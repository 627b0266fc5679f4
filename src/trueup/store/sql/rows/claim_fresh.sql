-- claim: rows that nothing is known about -> held, in the order asked for, up to a number.
-- Fence made: (reconciler, key, holder, term). State, staleness and due time are checked again on the row that was locked.
-- Walks the user's table from where the sweep has come to, a window at a time, so that a claim costs the same however many rows
-- have been looked at before. Index: rows_pkey, and one of the user's own (IndexMissing names the one that would serve).
-- Locks the user's row before what is known about it, as every statement over both does: so they cannot wait for one another.
with seen as materialized (
  select w.*, row_number() over (order by {sorted}) as trueup_n
    from (select * from ({branches}) as every_state order by {sorted} limit %(window)s) as w
), fresh as materialized (
  select s.* from seen as s
   where not exists (select from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = s.trueup_key)
   order by s.trueup_n limit %(most)s
), taken as materialized (
  select f.trueup_n, f.trueup_key, {about}, {columns}
    from {table} as t join fresh as f on {t_is_f}
   where {free}
     for {lock} of t skip locked
), claimed as (
  insert into {schema}.rows as r (reconciler, key, state, due_at, holder, term, attempt, was_state, was_changed_at, claimed_at, changed_at)
  select %(reconciler)s, k.trueup_key, 'held', {now} + make_interval(secs => %(lease_for)s::float8), %(holder)s,
         (select {schema}.term_floor()) + nextval('{schema}.row_terms'), 1, {fresh_state}, {fresh_changed_at}, {now}, {now}
    from taken as k
  on conflict (reconciler, key) do nothing
  returning r.key, r.term, r.attempt, false as spent, r.claimed_at, r.was_state, r.was_changed_at
){moved}, place as (
  select * from seen
   where trueup_n = case when (select count(*) from fresh) >= %(most)s then (select max(trueup_n) from fresh)
                         else (select max(trueup_n) from seen) end
)
select (select count(*) from seen) < %(window)s and (select count(*) from fresh) < %(most)s, place.trueup_null, {place},
       c.key, c.term, c.attempt, c.spent, c.claimed_at, c.was_state, c.was_changed_at, {handed}
  from (select 1) as one
  left join place on true
  left join (claimed as c join {given} as g on g.trueup_key = c.key) on true
 order by g.trueup_n;
