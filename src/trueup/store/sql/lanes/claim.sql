-- claim: queued -> running, through a lane of its own, best rank first, within the lane's limits.
-- While its kind or its queue is paused it allows none.
-- Fence made: (id, holder, term). Limits hold because the lane's row is locked and running jobs are counted after that.
-- Index: jobs_due walks each priority to the last job that is due, jobs_in_lane counts.
-- `only`: of these jobs, after another has made the statement fail.
-- The last column is how many the lane's limits allowed. Without a job there is one row with that alone.
with recursive me as materialized (
  select holder from {schema}.workers
   where holder = %(holder)s and rescued_at is null and lease_until > {now}
     and not exists (select from {schema}.pauses as p
                      where (p.what = 'queue' and p.name = %(queue)s) or (p.what = 'kind' and p.name = %(kind)s))
     for key share
), room as materialized (
  select coalesce((select greatest(0, least(%(most)s, %(total)s::int - (
           select count(*) from {schema}.jobs where state = 'running' and lane <> queue and lane = %(lane)s))) from me), 0) as n
), {priorities}, first as materialized (
  select f.*, row_number() over (partition by f.key order by f.rank, f.id) as nth
    from due,
         lateral (select j.ctid as slot, j.id, j.key, j.rank, {bytes} as bytes from {schema}.jobs as j
                   where j.state = 'queued' and j.lane = %(lane)s and j.priority = due.priority
                     and (j.run_at, j.id) >= (due.run_at, due.id) and j.run_at <= {now} and {named}
                   order by j.run_at, j.id limit (select n from room)) as f
), chosen as materialized (
  select slot, id, rank, bytes, 0 as turn, 1 as nth
    from first
   where %(per_key)s::int is null
      or nth <= %(per_key)s::int - (select count(*) from {schema}.jobs as r
                                     where r.state = 'running' and r.lane <> r.queue and r.lane = %(lane)s and r.key = first.key)
   order by rank, id limit (select n from room)
), {taken}
select c.id, c.kind, c.queue, c.lane, c.key, c.args::text, c.attempt, c.max_attempts, c.crashes, c.term, c.run_at, c.enqueued_at,
       c.claimed_at, c.rank, c.schedule, c.due_at, c.cancel_requested_at is not null, c.exhausting::text, c.meta::text, (select n from room)
  from (select) as always left join (claimed as c join chosen on chosen.id = c.id) on true
 order by chosen.rank, c.id;
