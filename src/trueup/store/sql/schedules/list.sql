-- All schedules, with their last verdict, what runs, and why a tick is refused. Index: ticks_pkey, jobs_of_schedule.
select s.name, s.origin, s.state, s.spec, s.policy, s.kind, s.queue, s.version, s.next_due_at, s.decided_until, s.note,
       last.due_at as last_due_at, last.outcome as last_outcome, last.reason as last_reason,
       (select count(*) from {schema}.jobs as j where j.schedule = s.name) as unfinished,
       (select jsonb_build_object('error', r.error, 'refusals', r.refusals, 'refused_at', r.refused_at, 'retry_at', r.retry_at)
          from {schema}.schedule_refusals as r where r.name = s.name and r.version = s.version) as refused
  from {schema}.schedules as s
  left join lateral (select due_at, outcome, reason from {schema}.ticks as t where t.schedule = s.name order by due_at desc limit 1) as last on true
 order by s.name;
