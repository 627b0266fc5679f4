-- Runs of schedules that have not ended, and how many of them are late: their tick was, or they have been due for longer
-- than its grace and no worker has started them. Index: jobs_of_schedule.
select j.schedule, count(*) as unfinished,
       count(*) filter (where t.decided_at - t.due_at > g.grace
                           or j.state = 'queued' and j.run_at < coalesce(%(now)s::timestamptz, now()) - g.grace) as late
  from {schema}.jobs as j
  left join {schema}.ticks as t on t.schedule = j.schedule and t.due_at = j.due_at and t.job_id = j.id
  left join unnest(%(names)s::text[], %(graces)s::float8[]) as s(name, grace) on s.name = j.schedule
 cross join lateral (select make_interval(secs => coalesce(s.grace, %(grace)s::float8)) as grace) as g
 where j.schedule is not null
 group by j.schedule;
