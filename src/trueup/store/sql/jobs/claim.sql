-- claim: queued -> running, best rank first, up to a number.
-- Fence made: (id, holder, term); the term grows at each claim of a row and is lifted by each new timeline.
-- Index: jobs_ready, walked in order; sent after session/steer, because with statistics that are missing or old the planner
-- would rather sort a whole backlog than trust that the limit is small.
-- The limit sits in a materialised CTE, so that no plan can claim more. The worker's row is share-locked, so that a rescue
-- of this worker and a claim by it cannot miss each other.
with me as materialized (
  select holder from {schema}.workers
   where holder = %(holder)s and rescued_at is null and lease_until > coalesce(%(now)s::timestamptz, now())
     for key share
), ready as materialized (
  select ctid as slot from {schema}.jobs
   where state = 'queued' and lane = %(lane)s and run_at <= coalesce(%(now)s::timestamptz, now()) and kind = any(%(kinds)s::text[])
     and exists (select from me)
   order by rank, id limit %(most)s
     for update skip locked
), claimed as (
  update {schema}.jobs
     set state = 'running', holder = %(holder)s, attempt = attempt + 1,
         term = greatest(term + 1, (select {schema}.term_floor())), claimed_at = coalesce(%(now)s::timestamptz, now())
   where ctid = any(array(select slot from ready))
  returning *
)
select id, kind, queue, lane, key, args::text, attempt, max_attempts, crashes, term, run_at, enqueued_at, claimed_at, schedule, due_at,
       cancel_requested_at is not null
  from claimed order by rank, id;
