-- snooze: running -> queued, later, with the attempt given back. Fence: (id, holder, term).
-- The first snooze stores in due_at when the job was claimed, so that handlers can bound the total delay.
-- Index: jobs_pkey or jobs_held, whichever promises fewer rows.
update {schema}.jobs as j
   set state = 'queued', holder = null, attempt = attempt - 1, due_at = coalesce(due_at, claimed_at),
       run_at = mine.run_at, rank = mine.run_at - make_interval(secs => priority::float8 * %(aging)s::float8)
  from (select m.id, m.term, coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => m.delay) as run_at
          from unnest(%(ids)s::bigint[], %(terms)s::bigint[], %(delays)s::float8[]) as m(id, term, delay)) as mine
 where j.id = any(%(ids)s::bigint[]) and j.id = mine.id and j.term = mine.term and j.holder = %(holder)s and j.state = 'running'
returning j.id;
