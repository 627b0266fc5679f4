-- Schedules with a tick that is due, how many of their runs have not finished, and whether they were refused before. Unless they are
-- named, those that are refused are left out: they are tried alone. Locked ones are skipped: the transaction that is changing them
-- decides what is due. Index: schedules_due, jobs_of_schedule.
select s.name, s.spec, s.policy, s.version, s.next_due_at, s.decided_until, s.lane, runs.running, runs.waiting,
       exists (select from {schema}.schedule_refusals as r where r.name = s.name) as refused
  from {schema}.schedules as s,
       lateral (select count(*) filter (where j.state = 'running') as running, count(*) filter (where j.state = 'queued') as waiting
                  from {schema}.jobs as j where j.schedule = s.name) as runs
 where s.state = 'active' and s.next_due_at <= %(now)s::timestamptz
   and case when %(names)s::text[] is null
            then not exists (select from {schema}.schedule_refusals as r where r.name = s.name and r.version = s.version)
            else s.name = any(%(names)s::text[]) end
   and not exists (select from unnest(%(unreadable_names)s::text[], %(unreadable_versions)s::bigint[]) as u(name, version)
                    where u.name = s.name and u.version = s.version)
 order by s.next_due_at, s.name
 limit %(most)s
   for update of s skip locked;
