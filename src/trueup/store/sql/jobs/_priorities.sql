priorities as (
  (select priority, run_at, id from {schema}.jobs
    where state = 'queued' and lane = %(lane)s order by priority, run_at, id limit 1)
  union all
  select next.priority, next.run_at, next.id
    from priorities as p,
         lateral (select j.priority, j.run_at, j.id from {schema}.jobs as j
                   where j.state = 'queued' and j.lane = %(lane)s and j.priority > p.priority
                   order by j.priority, j.run_at, j.id limit 1) as next
), due as materialized (
  select priority, run_at, id, count(*) over () as priorities from priorities where run_at <= {now} and exists (select from me)
)
