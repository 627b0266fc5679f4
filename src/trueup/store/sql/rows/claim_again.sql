-- claim: rows that are due again -> held, longest due first, from the position of the sweep. These are resting rows, and rows
-- whose holder's lease has expired. Those of the latter that may have killed their process (`suspects`: a handler was running for
-- them, or it was not the first process that died with them) are claimed separately, to be run one at a time.
-- Fence made: (reconciler, key, holder, term).
-- An attempt that ended with its process counts only if the row was alone: the others were merely held by the same process. An attempt
-- whose lease a living process lost counts, too: its handler took too long, or blocked the process.
-- Index: rows_due, in its order; then the user's key and rows_pkey, row by row as in claim_fresh.sql.
-- Locks the user's row before its record; locked rows are skipped. Claims 64 MiB at most, as claim_fresh.sql does.
with {locked} as materialized (
  select r.*, t.*
    from (select r.key as trueup_key, coalesce(r.whole_key, r.key) as trueup_whole_key, r.due_at as trueup_n
            from {schema}.rows as r
           where {again}
           order by r.due_at, r.key limit %(window)s) as r, lateral (
    select {about}, {columns}, ({free}) as trueup_free{weighs} from {table} as t where {t_is_r} limit 1 for {lock} of t skip locked
  ) as t
   where t.trueup_free
   order by r.trueup_n, r.trueup_key limit %(most)s
), {bounded}known as materialized (
  select k.*, r.reconciler as trueup_reconciler, (select {schema}.term_floor()) + nextval('{schema}.row_terms') as trueup_new_term,
         r.state = 'held' as trueup_left, r.alone as trueup_alone, r.attempt as trueup_attempt, r.started as trueup_started,
         r.was_state as trueup_was_state, r.was_changed_at as trueup_was_changed_at,
         r.state = 'held' and (r.holder = %(holder)s or exists (
           select from {schema}.workers as w
            where w.holder = r.holder and w.renewed_at > r.due_at - make_interval(secs => %(lease_for)s::float8 * 0.4::float8))) as trueup_outlived
    from taken as k, lateral (
    select r.* from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = k.trueup_key limit 1 for update skip locked
  ) as r
   where r.state in ('held', 'resting') and r.due_at <= {now} and (r.state = 'held' and (r.started or r.crashes > 0)) = %(suspects)s{unclaimed}
), judged as materialized (
  select k.*, not k.trueup_left or k.trueup_alone or k.trueup_started and k.trueup_outlived as trueup_counts from known as k
), mine as (
  update {schema}.rows as r
     set state = 'held', holder = %(holder)s, due_at = {now} + make_interval(secs => %(lease_for)s::float8), term = k.trueup_new_term,
         occasion = coalesce(r.occasion, k.trueup_new_term),
         attempt = case when k.trueup_counts then least(r.attempt + 1, %(max_attempts)s) else greatest(r.attempt, 1) end,
         crashes = r.crashes + (k.trueup_left and not k.trueup_outlived)::int, alone = %(suspects)s, started = false,
         was_state = {again_state}, was_changed_at = {again_changed_at}, claimed_at = {now}, changed_at = {now}
    from judged as k
   where r.reconciler = k.trueup_reconciler and r.key = k.trueup_key
  returning r.key as trueup_key, r.term as trueup_term, r.occasion as trueup_occasion, r.attempt as trueup_attempt,
            k.trueup_left and k.trueup_counts and k.trueup_attempt >= %(max_attempts)s as trueup_spent, k.trueup_outlived,
            r.claimed_at as trueup_claimed_at, r.was_state as trueup_was_state, r.was_changed_at as trueup_was_changed_at,
            k.trueup_n, {passed}
){moved}, place as (
  (select k.trueup_n as due_at, k.trueup_key as key from taken as k
    where (select count(*) from taken) >= %(most)s or {cut} order by k.trueup_n desc, k.trueup_key desc limit 1)
  union all
  (select r.due_at, r.key from {schema}.rows as r
    where (select count(*) from taken) < %(most)s and not {cut} and {again}
    order by r.due_at, r.key offset %(window)s - 1 limit 1)
)
select {cut}, place.due_at, place.key, {handed}
  from (select {all_marked}) as one
  left join place on true
  left join {given} as c on true
 where one.ok = 1
 order by c.trueup_n, c.trueup_key;
