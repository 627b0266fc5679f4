-- What sweeps did, by reconciler and span of time. Index: sweeps_started_at, sweeps_of_reconciler for one.
select reconciler, date_bin(make_interval(secs => %(step)s::float8), ended_at, 'epoch'::timestamptz) as begins_at,
       sum(changed)::bigint, sum(unchanged)::bigint, sum(retry)::bigint, sum(quarantined)::bigint, sum(conflict + undone + lost)::bigint, max(worst_lateness_s)
  from {schema}.sweeps
 where started_at >= %(since)s::timestamptz and (%(name)s::text is null or reconciler = %(name)s::text)
 group by 1, 2;
