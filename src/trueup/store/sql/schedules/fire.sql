-- Records ticks, and enqueues a job for each that is fired, all or nothing. Says of each job whether it was stored: a trigger may drop it. A tick that has its verdict already keeps it and
-- makes no second job: the ledger's primary key decides. Only a backfill turns a skipped tick into a fired one; when its row
-- stands for several in a row, the others stay skipped. A job goes to today's lane: that of its queue, when running workers know the
-- kind and none serves the lane that the schedule was made with.
with {living}, given as materialized (
  select g.*, case when g.outcome = 'fired' then nextval('{schema}.jobs_id_seq') end as job_id
    from unnest(%(names)s::text[], %(due_ats)s::timestamptz[], %(last_due_ats)s::timestamptz[], %(counts)s::int[],
                %(outcomes)s::text[], %(reasons)s::text[], %(run_ats)s::timestamptz[])
         as g(schedule, due_at, last_due_at, count, outcome, reason, run_at)
), ledger as (
  insert into {schema}.ticks as t (schedule, due_at, last_due_at, count, outcome, reason, job_id, version, decided_at)
  select g.schedule, g.due_at, g.last_due_at, g.count, g.outcome, g.reason, g.job_id, s.version, coalesce(%(now)s::timestamptz, now())
    from given as g join {schema}.schedules as s on s.name = g.schedule
  on conflict (schedule, due_at) do update
     set outcome = 'fired', reason = excluded.reason || ' (was ' || t.reason || ')', job_id = excluded.job_id, decided_at = excluded.decided_at
   where t.outcome = 'skipped' and excluded.reason = 'backfill'
  returning schedule, due_at, job_id
), made as (
  insert into {schema}.jobs (id, kind, queue, lane, priority, run_at, rank, args, max_attempts, enqueued_at, schedule, due_at, meta)
  select l.job_id, s.kind, s.queue, {todays_lane}, s.priority, g.run_at, g.run_at - make_interval(secs => s.priority::float8 * %(aging)s::float8),
         s.args, s.max_attempts, coalesce(%(now)s::timestamptz, now()), l.schedule, l.due_at, s.meta
    from ledger as l
    join given as g on g.schedule = l.schedule and g.due_at = l.due_at
    join {schema}.schedules as s on s.name = l.schedule
   where l.job_id is not null
  returning id, lane, run_at
), woken as (
  select count(pg_notify(%(channel)s, lane || ' ' || greatest(extract(epoch from first - coalesce(%(now)s::timestamptz, now())), 0)::text)) as n
    from (select lane, min(run_at) as first from made group by lane) as w
)
select ledger.schedule, ledger.due_at, ledger.job_id, made.id is not null as stored
  from ledger cross join woken left join made on made.id = ledger.job_id;
