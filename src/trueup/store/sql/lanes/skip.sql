-- After a claim that found nothing although the lane has room: the turn passes the keys it looked at, so that those beyond
-- them are reached. A lane with fewer keys than a claim looks at stays as it is.
-- Index: jobs_turns walks the keys, jobs_in_lane counts.
with recursive {walked}, last_seen as materialized (
  select key
    from walked
   order by part, key offset %(keys)s - 1 limit 1
)
update {schema}.lanes set last_key = last_seen.key
  from last_seen
 where lane = %(lane)s
   and (%(total)s::int is null
        or %(total)s::int > (select count(*) from {schema}.jobs where state = 'running' and lane <> queue and lane = %(lane)s));
