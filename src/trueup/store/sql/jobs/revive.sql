-- revive: dead -> queued, with all attempts available again, by a person. Keeps id, payload, errors and term. The lane is today's: that of
-- its queue, when running workers know the kind and none serves the lane it was in.
-- Index: history_id. A dead job whose unique key is taken by a live one stays dead and does not come back.
with {living}, chosen as materialized (
  select * from {schema}.history where state = 'dead' and id = any(%(ids)s::bigint[]) for update
), fresh as (
  insert into {schema}.jobs (id, kind, queue, lane, key, priority, run_at, rank, args, unique_key, max_attempts, term, enqueued_at, errors, schedule, meta, due_at)
  select id, kind, queue, {todays_lane}, key, priority, t.now, t.now - make_interval(secs => priority::float8 * %(aging)s::float8),
         args, unique_key, max_attempts, term, enqueued_at, errors, schedule, meta, case when schedule is not null then due_at end
    from chosen, (select coalesce(%(now)s::timestamptz, now()) as now) as t
  on conflict do nothing
  returning id, lane
), gone as (
  delete from {schema}.history where state = 'dead' and id = any(array(select id from fresh))
), woken as (
  select count(pg_notify(%(channel)s, lane || ' 0')) as n from (select distinct lane from fresh) as w
)
select fresh.id from fresh, woken;
