-- Worker processes and the jobs that each holds. Index: jobs_held.
select w.holder, w.host, w.pid, w.release, w.queues, w.concurrency,
       (select count(*) from {schema}.jobs as j where j.holder = w.holder and j.state = 'running') as running,
       w.started_at, extract(epoch from w.lease_until - coalesce(%(now)s::timestamptz, now()))::float8 as lease_left_s, w.stopping
  from {schema}.workers as w
 order by w.started_at;
