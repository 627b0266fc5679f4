-- Jobs that ended, by span of time: in which state, and the longest that one had waited to be started.
-- Index: history_finished_at (brin), and the partitions of other days are not looked at.
select date_bin(make_interval(secs => %(step)s::float8), finished_at, 'epoch'::timestamptz) as begins_at,
       count(*) filter (where state = 'done'), count(*) filter (where state = 'dead'), count(*) filter (where state = 'cancelled'),
       coalesce(extract(epoch from max(claimed_at - run_at) filter (where claimed_at >= run_at)), 0)::float8
  from {schema}.history
 where finished_at >= %(since)s::timestamptz
 group by 1;
