-- The ledger of a schedule between two moments, oldest first, and what became of each run. Index: ticks_pkey, history_id.
select t.due_at, t.last_due_at, t.count, t.outcome, t.reason, t.job_id, t.version, t.decided_at,
       coalesce((select state from {schema}.jobs where id = t.job_id), (select state from {schema}.history where id = t.job_id limit 1)) as run
  from {schema}.ticks as t
 where t.schedule = %(name)s and t.due_at >= %(since)s and t.due_at <= %(until)s
 order by t.due_at
 limit %(limit)s;
