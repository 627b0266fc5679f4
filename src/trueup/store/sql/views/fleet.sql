-- Worker processes with the jobs that each holds and what its code declares. Index: jobs_held, declarations_pkey.
select w.holder, w.host, w.pid, w.release, w.queues, w.concurrency,
       (select count(*) from {schema}.jobs as j where j.holder = w.holder and j.state = 'running') as running,
       w.started_at, w.renewed_at, w.lease_until, w.stopping, w.rescued_at, w.lease_until > {now} and w.rescued_at is null as alive,
       d.service, d.kinds, d.schedules, d.reconcilers, w.blocked
  from {schema}.workers as w left join {schema}.declarations as d on d.digest = w.declaration
 order by 13 desc, w.host, w.pid, w.started_at;
