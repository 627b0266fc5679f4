-- Of the named schedules, those whose latest runs since they were last changed, a given number of them, are all dead. A run that
-- has not ended, or was revived, does not count as dead. Index: ticks_pkey, history_id.
select asked.name
  from unnest(%(names)s::text[], %(mosts)s::int[]) as asked(name, most)
  join {schema}.schedules as s on s.name = asked.name,
       lateral (select count(*) as dead
                  from (select t.job_id from {schema}.ticks as t
                         where t.schedule = s.name and t.due_at >= s.changed_at and t.outcome = 'fired'
                         order by t.due_at desc limit asked.most) as latest
                  join {schema}.history as h on h.id = latest.job_id and h.state = 'dead') as runs
 where runs.dead = asked.most;
