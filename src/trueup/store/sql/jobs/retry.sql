-- retry: running -> queued, after a delay and with the error kept. Fence: (id, holder, term).
-- Index: jobs_pkey or jobs_held, whichever promises fewer rows.
update {schema}.jobs as j
   set state = 'queued', holder = null, run_at = mine.run_at, rank = mine.run_at - make_interval(secs => priority::float8 * %(aging)s::float8),
       errors = case when jsonb_array_length(errors) >= %(most_errors)s then errors - 1 else errors end || mine.error
  from (select m.id, m.term, m.error::jsonb as error, coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => m.delay) as run_at
          from unnest(%(ids)s::bigint[], %(terms)s::bigint[], %(delays)s::float8[], %(errors)s::text[]) as m(id, term, delay, error)) as mine
 where j.id = any(%(ids)s::bigint[]) and j.id = mine.id and j.term = mine.term and j.holder = %(holder)s and j.state = 'running'
returning j.id;
