-- All schedules, with their last verdict and the state of its run, what runs, and why a tick is refused. Index: ticks_pkey, jobs_pkey, history_id, jobs_of_schedule.
select s.name, s.origin, s.state, s.spec, s.policy, s.kind, s.queue, s.version, s.next_due_at, s.decided_until, s.note,
       last.due_at as last_due_at, last.outcome as last_outcome, last.reason as last_reason, last.job_id as last_job_id,
       coalesce((select j.state from {schema}.jobs as j where j.id = last.job_id),
                (select h.state from {schema}.history as h where h.id = last.job_id and h.finished_at >= last.decided_at limit 1)) as last_run,
       (select count(*) from {schema}.jobs as j where j.schedule = s.name) as unfinished,
       (select jsonb_build_object('error', r.error, 'refusals', r.refusals, 'refused_at', r.refused_at, 'retry_at', r.retry_at)
          from {schema}.schedule_refusals as r where r.name = s.name and r.version = s.version) as refused
  from {schema}.schedules as s
  left join lateral (select due_at, outcome, reason, job_id, decided_at from {schema}.ticks as t where t.schedule = s.name order by due_at desc limit 1) as last on true
 order by s.name;
