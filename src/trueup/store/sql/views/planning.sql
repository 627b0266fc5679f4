-- Schedules by state, and seconds until the next tick of any. Reads all schedules; Index for the next: schedules_due.
select count(*) filter (where state = 'active') as active, count(*) filter (where state = 'paused') as paused, count(*) filter (where state = 'retired') as retired,
       count(*) filter (where state = 'finished') as finished,
       (select extract(epoch from min(next_due_at) - coalesce(%(now)s::timestamptz, now()))::float8 from {schema}.schedules where state = 'active') as next_in_s,
       array(select name from {schema}.schedules where state = 'active' and decided_until > coalesce(%(now)s::timestamptz, now()) + interval '1 minute' order by name) as ahead,
       array(select s.name from {schema}.schedules as s join {schema}.schedule_refusals as r on r.name = s.name and r.version = s.version
              where s.state = 'active' order by s.name) as refused
  from {schema}.schedules;
