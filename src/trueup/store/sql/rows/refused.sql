-- A row that the database refused to move or delete -> resting, or quarantined after its last attempt: purges then skip it.
-- Fence: the attempt and the term that were read when the row was picked. Index: rows_pkey.
insert into {schema}.rows as r (reconciler, key, whole_key, state, due_at, term, attempt, was_state, claimed_at, changed_at, reason, errors)
values (%(reconciler)s, %(key)s, %(whole_key)s, %(state)s::text,
        case when %(state)s::text = 'resting' then {now} + make_interval(secs => %(delay)s::float8) else 'infinity' end,
        {schema}.term_floor() + nextval('{schema}.row_terms'), %(attempt)s::int, %(was_state)s, {now}, {now}, %(reason)s,
        jsonb_build_array(%(error)s::jsonb))
on conflict (reconciler, key) do update
   set state = excluded.state, due_at = excluded.due_at, term = excluded.term, attempt = excluded.attempt, was_state = excluded.was_state,
       changed_at = excluded.changed_at, reason = excluded.reason,
       errors = case when jsonb_array_length(r.errors) >= %(most_errors)s then r.errors - 1 else r.errors end || excluded.errors
 where r.state = 'resting' and r.attempt = %(known)s::int and r.term is not distinct from %(term)s::bigint
returning 1;
