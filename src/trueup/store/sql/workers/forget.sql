-- Deletes the rows of rescued workers without running jobs; their last heartbeat is kept. Index: jobs_held.
with gone as (
  delete from {schema}.workers as w
   where rescued_at is not null and not exists (select from {schema}.jobs as j where j.holder = w.holder and j.state = 'running')
  returning holder, host, pid, renewed_at
), kept as (
  insert into {schema}.fleet as f (last_alive_at)
  select max(renewed_at) from gone having count(*) > 0
  on conflict (one) do update set last_alive_at = excluded.last_alive_at where f.last_alive_at < excluded.last_alive_at
)
select holder, host, pid from gone;
