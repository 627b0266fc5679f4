-- Rows that the database refused to evaluate, move or delete -> resting, or quarantined after their last attempt: sweeps then skip
-- them. Fence: the term that was read when the row was picked; a lease on it has expired.
-- Returns the keys that were recorded. Index: rows_pkey. Locks as in change.sql.
with mine as materialized (
  select m.*, case when m.state = 'resting' then {now} + make_interval(secs => m.delay) else 'infinity' end as due_at
    from unnest(%(key)s::text[], %(whole_key)s::text[], %(state)s::text[], %(delay)s::float8[], %(attempt)s::int[], %(term)s::bigint[],
                %(was_state)s::text[], %(reason)s::text[], %(error)s::text[])
      as m(key, whole_key, state, delay, attempt, term, was_state, reason, error)
), theirs as materialized (
  select m.*, r.reconciler from mine as m, lateral (
    select r.reconciler, r.state, r.term, r.due_at from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update
  ) as r
   where r.term = m.term and (r.state = 'resting' or r.state = 'held' and r.due_at <= {now})
), again as (
  update {schema}.rows as r
     set state = m.state, due_at = m.due_at, term = {schema}.term_floor() + nextval('{schema}.row_terms'), attempt = m.attempt, holder = null,
         started = false, alone = false, was_state = coalesce(m.was_state, r.was_state), changed_at = {now}, reason = m.reason,
         errors = case when jsonb_array_length(r.errors) >= %(most_errors)s then r.errors - 1 else r.errors end || jsonb_build_array(m.error::jsonb)
    from theirs as m
   where r.reconciler = m.reconciler and r.key = m.key
  returning r.key
), fresh as (
  insert into {schema}.rows as r (reconciler, key, whole_key, state, due_at, term, attempt, was_state, claimed_at, changed_at, reason, errors)
  select %(reconciler)s, m.key, m.whole_key, m.state, m.due_at, {schema}.term_floor() + nextval('{schema}.row_terms'), m.attempt, m.was_state,
         {now}, {now}, m.reason, jsonb_build_array(m.error::jsonb)
    from mine as m
   where m.term is null
  on conflict (reconciler, key) do nothing
  returning r.key
)
select key from again union all select key from fresh;
