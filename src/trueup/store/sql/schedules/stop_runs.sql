-- Cancels the unfinished runs of schedules: queued ones immediately, running ones by request. Index: jobs_of_schedule.
with gone as (
  delete from {schema}.jobs where schedule = any(%(names)s::text[]) and state = 'queued' returning *
), kept as (
  insert into {schema}.history ({carried}, errors, state, finished_at, reason)
  select {carried}, errors, 'cancelled', {ended}, 'replaced by the next tick' from gone
), asked as (
  update {schema}.jobs set cancel_requested_at = coalesce(cancel_requested_at, %(now)s::timestamptz, now())
   where schedule = any(%(names)s::text[]) and state = 'running'
  returning id
)
select asked.id from asked, (select count(pg_notify(%(channel)s, 'stop')) from (select 1 from asked limit 1) as any_asked) as woken;
