-- Deletes the row of a worker that has handed everything back; its last heartbeat is kept. If it still holds jobs, the row stays and
-- its lease expires, so that they are rescued. Fence: `workers/hold` before it in the same transaction. Index: jobs_held.
with t as (
  select coalesce(%(now)s::timestamptz, now()) as now
), gone as (
  delete from {schema}.workers as w
   where holder = %(holder)s and not exists (select from {schema}.jobs as j where j.holder = w.holder and j.state = 'running')
  returning holder, renewed_at, lease_until
), kept as (
  insert into {schema}.fleet as f (last_alive_at)
  -- a worker whose lease had expired counts as gone since its last renewal
  select case when lease_until > t.now then t.now else renewed_at end from gone, t
  on conflict (one) do update set last_alive_at = excluded.last_alive_at where f.last_alive_at < excluded.last_alive_at
)
select holder from gone;
