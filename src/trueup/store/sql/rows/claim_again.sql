-- claim: resting -> held, for rows whose time has come again, longest due first; or held -> held (`crashed`), for rows whose
-- holder's lease has passed. Fence made: (reconciler, key, holder, term).
-- An attempt that ended with its process counts only if the row was alone: the others were merely in the same hand.
-- Index: rows_due, in its order; then the user's key. Locks the user's row before what is known about it.
with taken as materialized (
  select r.*, {about}, {columns}
    -- No name in here may be one of the user's columns: `where=` names those without a table.
    from (select r.key as trueup_key, r.due_at as trueup_n, r.term as trueup_term, r.attempt as trueup_attempt, r.alone as trueup_alone,
                 r.was_state as trueup_was_state, r.was_changed_at as trueup_was_changed_at
            from {schema}.rows as r
           where r.reconciler = %(reconciler)s and r.state in ('held', 'resting') and (r.state = 'held') = %(crashed)s
             and r.due_at <= least({now}, %(cut_off)s::timestamptz)
           order by r.due_at limit %(window)s) as r
    join {table} as t on {t_is_r}
   where {free}
   order by r.trueup_n limit %(most)s
     for {lock} of t skip locked
), claimed as (
  update {schema}.rows as r
     set state = 'held', holder = %(holder)s, due_at = {now} + make_interval(secs => %(lease_for)s::float8),
         term = (select {schema}.term_floor()) + nextval('{schema}.row_terms'),
         attempt = case when %(crashed)s and not k.trueup_alone then r.attempt else least(r.attempt + 1, %(max_attempts)s) end,
         crashes = r.crashes + %(crashed)s::boolean::int, alone = %(crashed)s,
         was_state = {again_state}, was_changed_at = {again_changed_at}, claimed_at = {now}, changed_at = {now}
    from taken as k
   where r.reconciler = %(reconciler)s and r.key = k.trueup_key and r.term = k.trueup_term
     and r.state in ('held', 'resting') and (r.state = 'held') = %(crashed)s and r.due_at <= {now}
  returning r.key, r.term, r.attempt, %(crashed)s and k.trueup_alone and k.trueup_attempt >= %(max_attempts)s as spent,
            r.claimed_at, r.was_state, r.was_changed_at
){moved}
select c.key, c.term, c.attempt, c.spent, c.claimed_at, c.was_state, c.was_changed_at, {handed}
  from claimed as c join {given} as g on g.trueup_key = c.key
 order by g.trueup_n;
