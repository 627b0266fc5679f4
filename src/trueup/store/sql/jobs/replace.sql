-- replace: queued -> queued, with new arguments and time; a running job is not touched and no row comes back.
-- Index: jobs_unique.
update {schema}.jobs
   set args = %(args)s::text::jsonb, meta = %(meta)s::text::jsonb, queue = %(queue)s, lane = %(lane)s, key = %(key)s, priority = %(priority)s::int,
       run_at = t.run_at, rank = t.run_at - make_interval(secs => %(priority)s::float8 * %(aging)s::float8),
       max_attempts = %(max_attempts)s, attempt = 0, crashes = 0, errors = '[]', progress = null, cancel_requested_at = null, exhausting = null,
       enqueued_at = coalesce(%(now)s::timestamptz, now())
  from (select coalesce(%(at)s::timestamptz, %(now)s::timestamptz, now()) + make_interval(secs => %(delay)s::float8) as run_at) as t
 where kind = %(kind)s and unique_key = %(unique_key)s and state = 'queued'
returning id;
