-- Jobs by span of time: when they ended and when they were enqueued, each with its own span; in which state they ended, and the longest
-- that one had waited to be started. Both spans come from one pass over the history: a job that was enqueued since then has also ended
-- since then, or is live. Reads all live jobs. Index: history_finished_at (brin), and the partitions of other days are not looked at.
(select date_bin(make_interval(secs => %(step)s::float8), finished_at, 'epoch'::timestamptz) as ended_in,
        case when enqueued_at >= %(since)s::timestamptz
             then date_bin(make_interval(secs => %(step)s::float8), enqueued_at, 'epoch'::timestamptz) end as enqueued_in,
        count(*), count(*) filter (where state = 'done'), count(*) filter (where state = 'dead'), count(*) filter (where state = 'cancelled'),
        coalesce(extract(epoch from max(claimed_at - run_at) filter (where claimed_at >= run_at)), 0)::float8
   from {schema}.history
  where finished_at >= %(since)s::timestamptz
  group by 1, 2)
union all
(select null, date_bin(make_interval(secs => %(step)s::float8), enqueued_at, 'epoch'::timestamptz), count(*), 0, 0, 0, 0
   from {schema}.jobs where enqueued_at >= %(since)s::timestamptz
  group by 2);
