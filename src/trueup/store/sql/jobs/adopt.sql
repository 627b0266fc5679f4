-- Moves queued jobs of kinds without a lane of their own back to their queue's lane, unless a living worker of another release serves
-- the lane they are in. A batch at a time: returns the ids, and none when no job is left. Sent after session/steer.
-- Index: jobs_due or jobs_due_by_key.
with {living}, left_over as materialized (
  select given.lane from unnest(%(lanes)s::text[]) as given(lane)
   where not exists (select from living where given.lane = any(living.lanes))
), adopted as (
  update {schema}.jobs set lane = queue
   where state = 'queued'
     and ctid = any(array(select ctid from {schema}.jobs
                           where state = 'queued' and lane = any(array(select lane from left_over)) and lane <> queue
                           limit 5000 for update skip locked))
  returning id, lane, run_at
), woken as (
  select count(pg_notify(%(channel)s, lane || ' ' || greatest(extract(epoch from first - {now}), 0)::text)) as n
    from (select lane, min(run_at) as first from adopted group by lane) as w
)
select adopted.id from adopted, woken;
