-- Jobs in some states that match, newest first, down to an id. Index: jobs_pkey, history_id.
-- Moments of ended jobs from before the table refused unreadable ones are shown as the nearest readable one.
(select id, kind, queue, state, priority, attempt, max_attempts, run_at, enqueued_at, null::timestamptz as finished_at, 
        coalesce((select jsonb_build_object('attempt', jobs.attempt, 'at', r.refused_at, 'type', 'refused by PostgreSQL'::text,
                             'message', r.move || ': '::text || r.error)
                    from {schema}.job_refusals as r
                   where r.job_id = jobs.id and r.term = jobs.term and r.state = jobs.state), errors -> -1) as error, progress
   from {schema}.jobs
  where %(states)s::text[] operator(pg_catalog.&&) array['queued', 'running'] and state = any(%(states)s::text[]) and id < %(before)s::bigint and id >= %(down_to)s::bigint and {matching}
  order by id desc limit %(limit)s)
union all
(select id, kind, queue, state, priority, attempt, max_attempts, greatest('0002-01-01 00:00:00+00'::timestamptz, least(run_at, '9000-01-01 00:00:00+00'::timestamptz)) as run_at, enqueued_at, finished_at, errors -> -1, progress
   from {schema}.history
  where state = any(%(states)s::text[]) and id < %(before)s::bigint and id >= %(down_to)s::bigint and {matching}
  order by id desc limit %(limit)s)
order by id desc limit %(limit)s;
