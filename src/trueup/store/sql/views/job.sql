-- Everything about one job, live or ended. What PostgreSQL refuses about it comes after its errors. Index: jobs_pkey, history_id.
-- Moments of ended jobs from before the table refused unreadable ones are shown as the nearest readable one.
select id, kind, queue, lane, key, state, priority, run_at, args, unique_key, attempt, max_attempts, crashes, term, holder, enqueued_at, claimed_at,
       cancel_requested_at, null::timestamptz as finished_at, progress,
       errors || coalesce((select jsonb_build_array(jsonb_build_object('attempt', jobs.attempt, 'at', r.refused_at, 'type', 'refused by PostgreSQL'::text,
                             'message', r.move || ': '::text || r.error))
                          from {schema}.job_refusals as r
                         where r.job_id = jobs.id and r.term = jobs.term and r.state = jobs.state), '[]'::jsonb) as errors, null::jsonb as result, null::text as reason, meta
  from {schema}.jobs where id = %(id)s
union all
select id, kind, queue, lane, key, state, priority, greatest('0002-01-01 00:00:00+00'::timestamptz, least(run_at, '9000-01-01 00:00:00+00'::timestamptz)) as run_at, args, unique_key, attempt, max_attempts, crashes, term, holder, enqueued_at, claimed_at,
       null, finished_at, progress, errors, result, reason, meta
  from {schema}.history where id = %(id)s
 limit 1;
