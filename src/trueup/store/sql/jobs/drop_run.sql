-- `jobs/drop` for runs of schedules that did not take place after all: the tick of each counts as skipped, with the reason, unless
-- that is null. Fence: (id, holder, term), for the tick too: a holder that lost its claim writes neither. A separate file, because
-- other drops do not have to be planned over every day of the ledger. Index: jobs_pkey or jobs_held, ticks_pkey.
with mine as (
  select * from unnest(%(ids)s::bigint[], %(terms)s::bigint[], %(reasons)s::text[], %(ticks_skipped)s::text[]) as m(id, term, reason, tick_skipped)
), gone as (
  delete from {schema}.jobs as j using mine
   where j.id = any(%(ids)s::bigint[]) and j.id = mine.id and j.term = mine.term and j.holder = %(holder)s and j.state = 'running'
  returning j.*, mine.reason, mine.tick_skipped
), skipped as (
  update {schema}.ticks as t set outcome = 'skipped', reason = gone.tick_skipped
    from gone
   where gone.tick_skipped is not null and t.schedule = gone.schedule and t.due_at = gone.due_at and t.job_id = gone.id and t.outcome = 'fired'
)
insert into {schema}.history ({carried}, errors, state, finished_at, reason)
select {carried}, errors, 'cancelled', {ended}, reason from gone
returning id;
