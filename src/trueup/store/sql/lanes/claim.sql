-- claim: queued -> running, through a lane of its own: within its limits, and a turn for each key.
-- Fence made: (id, holder, term). Limits hold because the lane's row is locked and running jobs are counted after that.
-- Index: jobs_turns walks the keys (one probe per key, not per job), jobs_in_lane counts.
with recursive me as materialized (
  select holder from {schema}.workers
   where holder = %(holder)s and rescued_at is null and lease_until > coalesce(%(now)s::timestamptz, now())
     for key share
), room as materialized (
  select least(%(most)s, coalesce(%(total)s::int - (select count(*) from {schema}.jobs where state = 'running' and lane <> queue and lane = %(lane)s), %(most)s)) as n
    from me
), {walked}, turns as materialized (
  select key, row_number() over (order by part, key) as turn
    from walked
   order by part, key limit %(keys)s
), chosen as materialized (
  select picked.id, turns.turn, picked.nth, turns.key
    from turns,
         lateral (select id, row_number() over (order by rank, id) as nth
                    from (select id, rank from {schema}.jobs
                           where state = 'queued' and lane <> queue and lane = %(lane)s and key = turns.key
                             and run_at <= coalesce(%(now)s::timestamptz, now())
                           order by rank, id
                           limit greatest(0, least(coalesce((select n from room), 0), %(per_key)s::int - (
                                   select count(*) from {schema}.jobs
                                    where state = 'running' and lane <> queue and lane = %(lane)s and key = turns.key)))) as first) as picked
   order by picked.nth, turns.turn
   limit greatest(0, coalesce((select n from room), 0))
), ready as materialized (
  select ctid as slot from {schema}.jobs
   where id = any(array(select id from chosen)) and state = 'queued'
     for update skip locked
), claimed as (
  update {schema}.jobs
     set state = 'running', holder = %(holder)s, attempt = attempt + 1,
         term = greatest(term + 1, (select {schema}.term_floor())), claimed_at = coalesce(%(now)s::timestamptz, clock_timestamp())
   where ctid = any(array(select slot from ready))
  returning *
)
select c.id, c.kind, c.queue, c.lane, c.key, c.args::text, c.attempt, c.max_attempts, c.crashes, c.term, c.run_at, c.enqueued_at, c.claimed_at, c.schedule, c.due_at,
       c.cancel_requested_at is not null
  from claimed as c join chosen using (id) order by chosen.nth, chosen.turn;
