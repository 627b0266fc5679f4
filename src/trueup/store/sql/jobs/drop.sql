-- drop: running -> cancelled: the handler discarded it, or it was cancelled on request. Fence: (id, holder, term).
-- Index: jobs_pkey or jobs_held, whichever promises fewer rows.
with mine as (
  select * from unnest(%(ids)s::bigint[], %(terms)s::bigint[], %(reasons)s::text[]) as m(id, term, reason)
), gone as (
  delete from {schema}.jobs as j using mine
   where j.id = any(%(ids)s::bigint[]) and j.id = mine.id and j.term = mine.term and j.holder = %(holder)s and j.state = 'running'
  returning j.*, mine.reason
)
insert into {schema}.history ({carried}, errors, state, finished_at, reason)
select {carried}, errors, 'cancelled', {ended}, reason from gone
returning id;
