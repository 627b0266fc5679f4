-- Live jobs per queue and kind.
select queue, kind, count(*) filter (where state = 'queued') as queued,
       count(*) filter (where state = 'queued' and run_at <= t.now) as due,
       count(*) filter (where state = 'running') as running,
       extract(epoch from t.now - min(run_at) filter (where state = 'queued' and run_at <= t.now))::float8 as oldest_due_s,
       exists (select from {schema}.pauses as p where (p.what = 'queue' and p.name = queue) or (p.what = 'kind' and p.name = kind)) as paused
  from {schema}.jobs, (select coalesce(%(now)s::timestamptz, now()) as now) as t
 group by queue, kind, t.now
 order by queue, kind;
