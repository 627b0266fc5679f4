-- Everything about one job, live or ended. Index: jobs_pkey, history_id.
-- Moments of ended jobs from before the table refused unreadable ones are shown as the nearest readable one.
select id, kind, queue, lane, key, state, priority, run_at, args, unique_key, attempt, max_attempts, crashes, term, holder, enqueued_at, claimed_at,
       cancel_requested_at, null::timestamptz as finished_at, progress, errors, null::jsonb as result, null::text as reason, meta
  from {schema}.jobs where id = %(id)s
union all
select id, kind, queue, lane, key, state, priority, greatest('0002-01-01 00:00:00+00'::timestamptz, least(run_at, '9000-01-01 00:00:00+00'::timestamptz)) as run_at, args, unique_key, attempt, max_attempts, crashes, term, holder, enqueued_at, claimed_at,
       null, finished_at, progress, errors, result, reason, meta
  from {schema}.history where id = %(id)s
 limit 1;
