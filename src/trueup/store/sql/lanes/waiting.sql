-- In how many seconds something can be claimed from each of these lanes: 0 when a job is due, more when the first becomes due or
-- the rate allows a start only then, null when the lane is at its limit. Lanes without queued jobs are left out, and those of
-- paused queues and kinds.
-- Index: jobs_due finds the first job of each lane and priority that has any, jobs_in_lane counts.
with recursive firsts as (
  (select lane, priority, run_at from {schema}.jobs where state = 'queued' order by lane, priority, run_at, id limit 1)
  union all
  select next.lane, next.priority, next.run_at
    from firsts as f,
         lateral (select j.lane, j.priority, j.run_at from {schema}.jobs as j
                   where j.state = 'queued' and (j.lane, j.priority) > (f.lane, f.priority)
                   order by j.lane, j.priority, j.run_at, j.id limit 1) as next
), wanted as (
  select * from unnest(%(lanes)s::text[], %(totals)s::int[], %(spacings)s::float8[]) as w(lane, total, spacing)
   where lane <> all(array(select case p.what when 'queue' then p.name else '@'::text || p.name end from {schema}.pauses as p))
), soonest as (
  select lane, total, spacing, min(run_at) as run_at from firsts join wanted using (lane) group by lane, total, spacing
), rated as (
  -- a start further ahead than any is granted was stored before the clock was set back
  select s.*, case when l.next_start_at > {now} + make_interval(secs => s.spacing + %(ahead)s::float8) then null
                   else l.next_start_at - make_interval(secs => %(ahead)s::float8) end as next_start_at
    from soonest as s left join {schema}.lanes as l on l.lane = s.lane and s.spacing is not null
)
select lane, case when total is null or total > (select count(*) from (
                         select from {schema}.jobs as j
                          where j.state = 'running' and j.lane <> j.queue and j.lane = r.lane limit r.total) as running)
                  then greatest(extract(epoch from greatest(run_at, next_start_at) - {now}), 0)::float8 end
  from rated as r;
