-- enqueue: nothing -> queued, for a single job: what `enqueue` does, with less to plan. Index: jobs_unique arbitrates.
-- No row back: a live job has the unique key.
with fresh as (
  insert into {schema}.jobs (kind, queue, lane, key, priority, run_at, rank, args, unique_key, max_attempts, meta, enqueued_at)
  select %(kind)s, %(queue)s, %(lane)s, %(key)s, %(priority)s, t.run_at, t.run_at - make_interval(secs => %(head_start)s::float8),
         %(args)s::text::jsonb, %(unique_key)s, %(max_attempts)s, %(meta)s::text::jsonb, t.now
    from (select n.now, coalesce(%(at)s::timestamptz, n.now) + make_interval(secs => %(delay)s::float8) as run_at
            from (select coalesce(%(now)s::timestamptz, now()) as now) as n) as t
  on conflict (kind, unique_key) where unique_key is not null do nothing
  returning id, run_at, enqueued_at
)
select id, pg_notify(%(channel)s, %(lane)s || ' ' || greatest(extract(epoch from run_at - enqueued_at), 0)::text) from fresh;
