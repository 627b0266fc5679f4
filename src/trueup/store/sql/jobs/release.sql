-- release: running -> queued, due immediately and in its old place, with the attempt given back (orderly shutdown, wrong lane).
-- Fence: (id, holder, term). Index: jobs_pkey or jobs_held, whichever promises fewer rows.
with mine as (
  select * from unnest(%(ids)s::bigint[], %(terms)s::bigint[], %(lanes)s::text[], %(keys)s::text[]) as m(id, term, lane, key)
), released as (
  update {schema}.jobs as j
     set state = 'queued', holder = null, attempt = attempt - 1, lane = mine.lane, key = mine.key
    from mine
   where j.id = any(%(ids)s::bigint[]) and j.id = mine.id and j.term = mine.term and j.holder = %(holder)s and j.state = 'running'
  returning j.id, j.lane, j.run_at
), woken as (
  select count(pg_notify(%(channel)s, lane || ' ' || greatest(extract(epoch from first - coalesce(%(now)s::timestamptz, now())), 0)::text)) as n
    from (select lane, min(run_at) as first from released group by lane) as w
)
select released.id from released, woken;
