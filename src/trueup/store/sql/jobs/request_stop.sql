-- Requests the cancellation of running jobs; the state does not change here. Notifies the holders.
-- Index: jobs_pkey.
with asked as (
  update {schema}.jobs set cancel_requested_at = coalesce(cancel_requested_at, %(now)s::timestamptz, now())
   where id = any(%(ids)s::bigint[]) and state = 'running'
  returning id
)
select asked.id from asked, (select count(pg_notify(%(channel)s, 'stop')) from (select 1 from asked limit 1) as any_asked) as woken;
