-- defer: running -> queued, because `exhausted=` failed or could not be called: the handler is not called again, only `exhausted=`.
-- The attempt is given back, so that the claim which calls it does not count as another one. Fence: (id, holder, term).
-- Index: jobs_pkey or jobs_held, whichever promises fewer rows.
with mine as (
  select m.id, m.term, m.errors::jsonb as errors, m.exhausting::jsonb as exhausting,
         coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => m.delay) as run_at
    from unnest(%(ids)s::bigint[], %(terms)s::bigint[], %(delays)s::float8[], %(errors)s::text[], %(exhausting)s::text[])
         as m(id, term, delay, errors, exhausting)
), deferred as (
  update {schema}.jobs as j
     set state = 'queued', holder = null, attempt = attempt - 1, exhausting = mine.exhausting,
         run_at = mine.run_at, rank = mine.run_at - make_interval(secs => priority::float8 * %(aging)s::float8),
         errors = case when jsonb_array_length(j.errors) >= %(most_errors)s then j.errors - 1 - 1
                       when jsonb_array_length(j.errors) = %(most_errors)s - 1 then j.errors - 1 else j.errors end || mine.errors
    from mine
   where j.id = any(%(ids)s::bigint[]) and j.id = mine.id and j.term = mine.term and j.holder = %(holder)s and j.state = 'running'
  returning j.id, j.lane, j.run_at
), woken as (
  select count(pg_notify(%(channel)s, lane || ' ' || greatest(extract(epoch from first - coalesce(%(now)s::timestamptz, now())), 0)::text)) as n
    from (select lane, min(run_at) as first from deferred group by lane) as w
)
select deferred.id from deferred, woken;
