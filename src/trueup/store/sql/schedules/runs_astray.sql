-- Runs that the ledger does not account for: of no tick at all, or of a tick whose run another job is. A skipped tick that was
-- backfilled may have had an earlier run. Reads all of the history since the moment; for audits, not for workers.
select j.schedule, j.due_at, j.id, t.job_id as recorded
  from (select id, schedule, due_at from {schema}.jobs where schedule is not null and due_at > %(since)s
        union all
        select id, schedule, due_at from {schema}.history where schedule is not null and due_at > %(since)s and finished_at > %(since)s) as j
  left join {schema}.ticks as t on t.schedule = j.schedule and t.due_at = j.due_at
 where t.job_id is distinct from j.id and (t.reason is null or t.reason not like 'backfill (was %%')
 order by j.schedule, j.due_at, j.id;
