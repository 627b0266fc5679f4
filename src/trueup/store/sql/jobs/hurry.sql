-- hurry: queued -> queued, due now (a job in backoff or scheduled for later). Index: jobs_pkey or jobs_due, whichever promises fewer rows.
with hurried as (
  update {schema}.jobs
     set run_at = t.now, rank = least(rank, t.now - make_interval(secs => priority::float8 * %(aging)s::float8))
    from (select coalesce(%(now)s::timestamptz, now()) as now) as t
   where id = any(%(ids)s::bigint[]) and state = 'queued' and run_at > t.now
  returning id, lane
), woken as (
  select count(pg_notify(%(channel)s, lane || ' 0')) as n from (select distinct lane from hurried) as w
)
select hurried.id from hurried, woken;
