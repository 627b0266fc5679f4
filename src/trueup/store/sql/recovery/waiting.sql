-- Jobs that have been due for longer than `grace` and that no worker has claimed, by queue and kind. Runs of schedules are counted
-- there.
select queue, kind, count(*) as waiting, extract(epoch from t.now - min(run_at))::float8 as oldest_s
  from {schema}.jobs, (select coalesce(%(now)s::timestamptz, now()) as now) as t
 where state = 'queued' and run_at < t.now - make_interval(secs => %(grace)s::float8) and schedule is null
 group by queue, kind, t.now
 order by queue, kind;
