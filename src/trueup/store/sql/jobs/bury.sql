-- bury: running -> dead, into the history with its payload and errors. Fence: (id, holder, term).
-- Index: jobs_pkey or jobs_held, whichever promises fewer rows.
with mine as (
  select * from unnest(%(ids)s::bigint[], %(terms)s::bigint[], %(errors)s::text[], %(reasons)s::text[]) as m(id, term, error, reason)
), gone as (
  delete from {schema}.jobs as j using mine
   where j.id = any(%(ids)s::bigint[]) and j.id = mine.id and j.term = mine.term and j.holder = %(holder)s and j.state = 'running'
  returning j.*, mine.error, mine.reason
)
insert into {schema}.history ({carried}, errors, state, finished_at, reason)
select {carried}, case when jsonb_array_length(errors) >= %(most_errors)s then errors - 1 else errors end || error::jsonb,  -- an error, or an array of them
       'dead', {ended}, reason
  from gone
returning id;
