-- Ends a pause, and wakes the listeners of every lane that has jobs of the queue or kind. No row back: it was not paused.
-- The live jobs are read once.
with gone as (
  delete from {schema}.pauses where what = %(what)s::text and name = %(name)s::text returning what, name
), lanes as (
  select distinct j.lane from {schema}.jobs as j, gone
   where j.state = 'queued' and ((gone.what = 'queue' and j.queue = gone.name) or (gone.what = 'kind' and j.kind = gone.name))
), woken as (
  select count(pg_notify(%(channel)s, lane || ' 0')) as n from lanes
)
select gone.name from gone, woken;
