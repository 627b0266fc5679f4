-- claim: resting -> held, for rows whose time has come again, longest due first; or held -> held (`crashed`), for rows whose
-- holder's lease has passed. Fence made: (reconciler, key, holder, term).
-- An attempt that ended with its process counts only if the row was alone: the others were merely in the same hand.
-- Index: rows_due, in its order; then the user's key and rows_pkey, row by row as in claim_fresh.sql.
-- Locks the user's row before what is known about it; whatever somebody has locked is passed over.
with taken as materialized (
  select r.*, t.*
    from (select r.key as trueup_key, r.due_at as trueup_n
            from {schema}.rows as r
           where r.reconciler = %(reconciler)s and r.state in ('held', 'resting') and (r.state = 'held') = %(crashed)s
             and r.due_at <= least({now}, %(cut_off)s::timestamptz)
           order by r.due_at limit %(window)s) as r, lateral (
    select {about}, {columns}, ({free}) as trueup_free from {table} as t where {t_is_r} limit 1 for {lock} of t skip locked
  ) as t
   where t.trueup_free
   order by r.trueup_n limit %(most)s
), known as materialized (
  select k.*, r.alone as trueup_alone, r.attempt as trueup_attempt, r.was_state as trueup_was_state, r.was_changed_at as trueup_was_changed_at
    from taken as k, lateral (
    select r.* from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = k.trueup_key limit 1 for update skip locked
  ) as r
   where r.state = case when %(crashed)s then 'held' else 'resting' end and r.due_at <= {now}
), mine as (
  update {schema}.rows as r
     set state = 'held', holder = %(holder)s, due_at = {now} + make_interval(secs => %(lease_for)s::float8),
         term = (select {schema}.term_floor()) + nextval('{schema}.row_terms'),
         attempt = case when %(crashed)s and not k.trueup_alone then r.attempt else least(r.attempt + 1, %(max_attempts)s) end,
         crashes = r.crashes + %(crashed)s::boolean::int, alone = %(crashed)s,
         was_state = {again_state}, was_changed_at = {again_changed_at}, claimed_at = {now}, changed_at = {now}
    from known as k
   where r.reconciler = %(reconciler)s and r.key = k.trueup_key
  returning r.key as trueup_key, r.term as trueup_term, r.attempt as trueup_attempt,
            %(crashed)s and k.trueup_alone and k.trueup_attempt >= %(max_attempts)s as trueup_spent, r.claimed_at as trueup_claimed_at,
            r.was_state as trueup_was_state, r.was_changed_at as trueup_was_changed_at, k.trueup_n, {passed}
){moved}
select {handed}
  from {given} as c
 order by c.trueup_n;
