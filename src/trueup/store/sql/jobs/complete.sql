-- complete: running -> done, into the history. Fence: (id, holder, term). An id that does not come back was lost.
-- Index: jobs_pkey or jobs_held, whichever promises fewer rows.
with mine as (
  select * from unnest(%(ids)s::bigint[], %(terms)s::bigint[], %(results)s::text[]) as m(id, term, result)
), gone as (
  delete from {schema}.jobs as j using mine
   where j.id = any(%(ids)s::bigint[]) and j.id = mine.id and j.term = mine.term and j.holder = %(holder)s and j.state = 'running'
  returning j.*, mine.result
)
insert into {schema}.history ({carried}, errors, state, finished_at, result)
select {carried}, errors, 'done', {ended}, result::jsonb from gone
returning id;
