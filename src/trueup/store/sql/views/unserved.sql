-- Kinds with jobs that are due in a queue where no living worker runs them, judged by the first jobs of each lane: what no worker
-- claims gathers there. A worker of an older release does not say which kinds it knows, and is taken to know them all.
-- Sent after session/steer. Index: jobs_due, for the lanes and the head of each.
with recursive lanes as (
  (select lane from {schema}.jobs where state = 'queued' order by lane limit 1)
  union all
  select (select j.lane from {schema}.jobs as j where j.state = 'queued' and j.lane > l.lane order by j.lane limit 1)
    from lanes as l where l.lane is not null
), heads as materialized (
  select head.kind, head.queue, count(*) as waiting, min(head.run_at) as oldest
    from lanes,
         lateral (select kind, queue, run_at from {schema}.jobs
                   where state = 'queued' and lane = lanes.lane order by rank, id limit 100) as head
   where lanes.lane is not null and head.run_at <= {now}
   group by head.kind, head.queue
)
select kind, queue, waiting, extract(epoch from {now} - oldest)::float8 as oldest_s
  from heads
 where not exists (select from {schema}.workers as w left join {schema}.declarations as d on d.digest = w.declaration
                    where w.rescued_at is null and w.lease_until > {now} and heads.queue = any(w.queues)
                      and (d.digest is null or heads.kind = any(d.kinds)))
 order by queue, kind;
