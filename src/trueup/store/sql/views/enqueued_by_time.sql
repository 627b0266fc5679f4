-- Jobs that were enqueued, by span of time. Reads all live jobs; of the history what ended since then, which all of these did.
-- Index: history_finished_at (brin), and the partitions of other days are not looked at.
select begins_at, sum(n)::bigint from (
  (select date_bin(make_interval(secs => %(step)s::float8), enqueued_at, 'epoch'::timestamptz) as begins_at, count(*) as n
     from {schema}.jobs where enqueued_at >= %(since)s::timestamptz group by 1)
  union all
  (select date_bin(make_interval(secs => %(step)s::float8), enqueued_at, 'epoch'::timestamptz), count(*)
     from {schema}.history where finished_at >= %(since)s::timestamptz and enqueued_at >= %(since)s::timestamptz group by 1)
) as both_tables
 group by 1;
