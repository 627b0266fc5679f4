-- Kinds with jobs that are due in a queue where no living worker runs them, judged by the first due jobs of each lane and priority,
-- where unclaimed jobs gather. A worker of an older release does not record which kinds it knows, and is assumed to know them all.
-- Sent after session/steer. Index: jobs_due, for the lanes and the head of each.
with recursive places as (
  (select lane, priority from {schema}.jobs where state = 'queued' order by lane, priority limit 1)
  union all
  select next.lane, next.priority
    from places as p,
         lateral (select j.lane, j.priority from {schema}.jobs as j
                   where j.state = 'queued' and (j.lane, j.priority) > (p.lane, p.priority) order by j.lane, j.priority limit 1) as next
), heads as materialized (
  select head.kind, head.queue, count(*) as waiting, min(head.run_at) as oldest
    from (select * from places limit 1000) as p,
         lateral (select j.kind, j.queue, j.run_at from {schema}.jobs as j
                   where j.state = 'queued' and j.lane = p.lane and j.priority = p.priority and j.run_at <= {now}
                   order by j.run_at, j.id limit 100) as head
   group by head.kind, head.queue
)
select kind, queue, waiting, extract(epoch from {now} - oldest)::float8 as oldest_s
  from heads
 where not exists (select from {schema}.workers as w left join {schema}.declarations as d on d.digest = w.declaration
                    where w.rescued_at is null and w.lease_until > {now} and heads.queue = any(w.queues)
                      and (d.digest is null or heads.kind = any(d.kinds)))
 order by queue, kind;
