-- The latest ticks of a schedule, newest first, with the state of each run. Index: ticks_pkey, history_id.
select t.due_at, t.last_due_at, t.count, t.outcome, t.reason, t.job_id, t.version, t.decided_at,
       coalesce((select state from {schema}.jobs where id = t.job_id), (select state from {schema}.history where id = t.job_id limit 1)) as run
  from {schema}.ticks as t
 where t.schedule = %(name)s
 order by t.due_at desc
 limit %(limit)s;
