-- claim: queued -> running, best rank first, up to a number and up to a size.
-- Fence made: (id, holder, term); the term grows at each claim of a row and is raised by each new timeline.
-- Index: jobs_due. Jobs of one priority are ordered by run_at, so each priority is walked from its first job to the last job that is
-- due, and jobs that are not due are never read. What claimed jobs have left in front of the first one, until it is vacuumed, is
-- passed once, where `priorities` finds that job. With several priorities, `best` counts how many of each are among the first by
-- rank, and that number of each is locked. If other workers have locked some of those, `others` fills the gap.
-- Sent after session/steer, because with missing or old statistics the planner would rather sort a whole backlog than
-- trust that the limit is small. The limits are in materialised CTEs, so that no plan can claim more. The worker's row is
-- share-locked, so that a rescue of this worker and a claim by it cannot miss each other.
-- Nothing is claimed from a paused queue, and no job of a paused kind.
-- `only`: of these jobs, after another has made the statement fail.
-- Rows come back in no order, and from the update itself: to pass them on through a CTE and to sort them takes the server an eighth
-- more time. The last column is the number of jobs found, of which those beyond the bytes are left.
with recursive me as materialized (
  select holder from {schema}.workers
   where holder = %(holder)s and rescued_at is null and lease_until > {now}
     and not exists (select from {schema}.pauses as p where p.what = 'queue' and p.name = %(lane)s)
     for key share
), {priorities}, best as materialized (
  select c.priority
    from due,
         lateral (select j.priority, j.rank, j.id from {schema}.jobs as j
                   where j.state = 'queued' and j.lane = %(lane)s and j.priority = due.priority
                     and (j.run_at, j.id) >= (due.run_at, due.id) and j.run_at <= {now}
                     and j.kind = any(%(kinds)s::text[]) and {running} and {named}
                   order by j.run_at, j.id limit %(most)s) as c
   order by c.rank, c.id limit %(most)s
), first as materialized (
  select f.slot, f.rank, f.id, f.bytes
    from due,
         lateral (select j.ctid as slot, j.rank, j.id, {bytes} as bytes from {schema}.jobs as j
                   where j.state = 'queued' and j.lane = %(lane)s and j.priority = due.priority
                     and (j.run_at, j.id) >= (due.run_at, due.id) and j.run_at <= {now}
                     and j.kind = any(%(kinds)s::text[]) and {running} and {named}
                   order by j.run_at, j.id
                   limit case when due.priorities = 1 then %(most)s
                              else (select count(*) from best where best.priority = due.priority) end
                     for update skip locked) as f
), others as materialized (
  select o.slot, o.rank, o.id, o.bytes
    from due,
         lateral (select j.ctid as slot, j.rank, j.id, {bytes} as bytes from {schema}.jobs as j
                   where j.state = 'queued' and j.lane = %(lane)s and j.priority = due.priority
                     and (j.run_at, j.id) >= (due.run_at, due.id) and j.run_at <= {now}
                     and j.kind = any(%(kinds)s::text[]) and {running} and {named}
                     and j.ctid <> all(array(select slot from first))
                   order by j.run_at, j.id
                   limit case when due.priorities = 1 then 0 else %(most)s - (select count(*) from first) end
                     for update skip locked) as o
   limit %(most)s - (select count(*) from first)
), ready as materialized (
  select * from first union all select * from others
), found as materialized (
  select count(*) as jobs, sum(bytes) as bytes from ready
), fitting as (
  select slot from ready where (select bytes from found) <= %(bytes)s
  union all
  select slot from (select slot, sum(bytes) over (order by rank, id) - bytes as bytes_before from ready) as each
   where (select bytes from found) > %(bytes)s and bytes_before < %(bytes)s
)
update {schema}.jobs
   set state = 'running', holder = %(holder)s, attempt = attempt + 1,
       term = greatest(term + 1, (select {schema}.term_floor())), claimed_at = {now}
 where ctid = any(array(select slot from fitting))
returning id, kind, queue, lane, key, args::text, attempt, max_attempts, crashes, term, run_at, enqueued_at, claimed_at, rank, schedule, due_at,
          cancel_requested_at is not null, exhausting::text, meta::text, (select jobs from found);
