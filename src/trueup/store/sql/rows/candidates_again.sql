-- The records that a claim of rows that are due again, or the search for records to forget (`set_aside`), looks at from its position on.
-- Locks nothing. Index: rows_due and rows_set_aside.
(select r.key, r.whole_key, null, r.attempt, r.term, r.state, r.due_at <= {now}, jsonb_extract_path_text(r.errors, '-1', 'type')
   from {schema}.rows as r
  where r.reconciler = %(reconciler)s and r.state in ('held', 'resting')
    and r.due_at <= least({now}, %(cut_off)s::timestamptz) and (r.due_at, r.key) > (%(after_due)s::timestamptz, %(after_key)s::text)
  order by r.due_at, r.key limit %(window)s)
union all
(select r.key, r.whole_key, null, r.attempt, r.term, r.state, false, jsonb_extract_path_text(r.errors, '-1', 'type')
   from {schema}.rows as r
  where %(set_aside)s::boolean and r.reconciler = %(reconciler)s and r.state in ('quarantined', 'discarded')
    and (r.changed_at, r.key) > (coalesce(%(after)s::timestamptz, '-infinity'), %(after_set_aside)s)
  order by r.changed_at, r.key limit %(window)s);
