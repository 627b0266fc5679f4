-- How jobs ended lately. Index: history_finished_at (brin), and the partitions of other days are not looked at.
select kind, state, count(*) as count
  from {schema}.history
 where finished_at > coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(within)s::float8)
 group by kind, state
 order by kind, state;
