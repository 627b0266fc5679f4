-- claim: queued -> running, through a lane of its own, a turn for each key, within the lane's limits.
-- While its kind or its queue is paused it allows none.
-- Fence made: (id, holder, term). Limits hold because the lane's row is locked and running jobs are counted after that.
-- Index: jobs_due_by_key finds the first job of each key and priority, starting after the key whose turn was last, and walks
-- those that have a due job; jobs_in_lane counts. At most `keys` of them are looked at, one probe for each.
-- `only`: of these jobs, after another has made the statement fail.
-- The last columns are how many the lane's limits allowed, how many keys were looked at, and the last of them. Without a job
-- there is one row with those alone.
with recursive me as materialized (
  select holder from {schema}.workers
   where holder = %(holder)s and rescued_at is null and lease_until > {now}
     and not exists (select from {schema}.pauses as p
                      where (p.what = 'queue' and p.name = %(queue)s) or (p.what = 'kind' and p.name = %(kind)s))
     for key share
), room as materialized (
  select coalesce((select greatest(0, least(%(most)s, %(total)s::int - (
           select count(*) from {schema}.jobs where state = 'running' and lane <> queue and lane = %(lane)s))) from me), 0) as n
), after_last as (
  (select key, priority, run_at, 1::bigint as n from {schema}.jobs
    where state = 'queued' and lane <> queue and lane = %(lane)s and key > %(last_key)s and (select n from room) > 0
    order by key, priority, run_at, id limit 1)
  union all
  select next.key, next.priority, next.run_at, a.n + 1
    from after_last as a,
         lateral (select j.key, j.priority, j.run_at from {schema}.jobs as j
                   where j.state = 'queued' and j.lane <> j.queue and j.lane = %(lane)s and (j.key, j.priority) > (a.key, a.priority)
                   order by j.key, j.priority, j.run_at, j.id limit 1) as next
   where a.n < %(keys)s
), from_start as (
  (select key, priority, run_at, 1 + (select count(*) from after_last) as n from {schema}.jobs
    where state = 'queued' and lane <> queue and lane = %(lane)s and key <= %(last_key)s and (select n from room) > 0
      and (select count(*) from after_last) < %(keys)s
    order by key, priority, run_at, id limit 1)
  union all
  select next.key, next.priority, next.run_at, f.n + 1
    from from_start as f,
         lateral (select j.key, j.priority, j.run_at from {schema}.jobs as j
                   where j.state = 'queued' and j.lane <> j.queue and j.lane = %(lane)s and (j.key, j.priority) > (f.key, f.priority)
                     and j.key <= %(last_key)s
                   order by j.key, j.priority, j.run_at, j.id limit 1) as next
   where f.n < %(keys)s
), walked as materialized (
  select * from after_last union all select * from from_start
), turns as materialized (
  select t.*, count(*) over () as waiting
    from (select key, min(n) as turn,
                 least((select n from room), %(per_key)s::int - (
                   select count(*) from {schema}.jobs as r
                    where r.state = 'running' and r.lane <> r.queue and r.lane = %(lane)s and r.key = walked.key)) as quota
            from walked where run_at <= {now} group by key) as t
   where quota > 0
), first as materialized (
  select f.*, turns.turn, turns.quota, row_number() over (partition by f.key order by f.rank, f.id) as nth
    from turns join walked using (key),
         lateral (select j.ctid as slot, j.id, j.key, j.rank, {bytes} as bytes from {schema}.jobs as j
                   where j.state = 'queued' and j.lane <> j.queue and j.lane = %(lane)s
                     and j.key = walked.key and j.priority = walked.priority and j.run_at <= {now} and {named}
                   order by j.run_at, j.id
                   -- with as many keys as there is room for, none has a second turn
                   limit case when turns.waiting >= (select n from room) then 1 else turns.quota end) as f
), chosen as materialized (
  select slot, id, rank, bytes, turn, nth from first where nth <= quota order by nth, turn limit (select n from room)
), {taken}
select c.id, c.kind, c.queue, c.lane, c.key, c.args::text, c.attempt, c.max_attempts, c.crashes, c.term, c.run_at, c.enqueued_at,
       c.claimed_at, c.rank, c.schedule, c.due_at, c.cancel_requested_at is not null, c.exhausting::text, c.meta::text,
       (select n from room), (select count(*) from walked), (select key from walked order by n desc limit 1)
  from (select) as always left join (claimed as c join chosen on chosen.id = c.id) on true
 order by chosen.nth, chosen.turn;
