-- enqueue: nothing -> queued. One statement for any number of rows; a live job with the same unique key is left alone.
-- Index: jobs_unique arbitrates. Rows come back for new jobs only. Notifies the listeners once per lane, with the seconds until the job is due.
with given as (
  select g.*, coalesce(g.at, %(now)s::timestamptz, now()) + make_interval(secs => g.delay) as run_at
    from unnest(%(kinds)s::text[], %(queues)s::text[], %(lanes)s::text[], %(keys)s::text[], %(priorities)s::int[],
                %(ats)s::timestamptz[], %(delays)s::float8[], %(args)s::text[], %(unique_keys)s::text[], %(max_attempts)s::int[],
                %(metas)s::text[])
         with ordinality as g(kind, queue, lane, key, priority, at, delay, args, unique_key, max_attempts, meta, position)
), fresh as (
  insert into {schema}.jobs (kind, queue, lane, key, priority, run_at, rank, args, unique_key, max_attempts, meta, enqueued_at)
  select kind, queue, lane, key, priority, run_at, run_at - make_interval(secs => priority::float8 * %(aging)s::float8),
         args::jsonb, unique_key, max_attempts, meta::jsonb, coalesce(%(now)s::timestamptz, now())
    from given order by position
  on conflict (kind, unique_key) where unique_key is not null do nothing
  returning id, lane, run_at, kind, unique_key
), woken as (
  select count(pg_notify(%(channel)s, lane || ' ' || greatest(extract(epoch from first - coalesce(%(now)s::timestamptz, now())), 0)::text)) as n
    from (select lane, min(run_at) as first from fresh group by lane) as w
)
select fresh.id, fresh.kind, fresh.unique_key from fresh, woken order by fresh.id;
