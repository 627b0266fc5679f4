-- After a claim that found nothing although the lane has room: the turn passes the keys it looked at, so that those beyond
-- them are reached. A lane with fewer keys than a claim looks at stays as it is.
-- Index: jobs_turns walks the keys, jobs_in_lane counts.
with recursive after_last as (
  (select key, 1 as n from {schema}.jobs
    where state = 'queued' and lane <> queue and lane = %(lane)s and key > %(last_key)s order by key limit 1)
  union all
  select (select key from {schema}.jobs
           where state = 'queued' and lane <> queue and lane = %(lane)s and key > a.key order by key limit 1), n + 1
    from after_last as a where a.key is not null and a.n < %(keys)s
), from_start as (
  (select key, 1 as n from {schema}.jobs
    where state = 'queued' and lane <> queue and lane = %(lane)s and key <= %(last_key)s order by key limit 1)
  union all
  select (select key from {schema}.jobs
           where state = 'queued' and lane <> queue and lane = %(lane)s and key > f.key and key <= %(last_key)s order by key limit 1), n + 1
    from from_start as f where f.key is not null and f.n < %(keys)s
), last_seen as materialized (
  select key
    from (select key, 1 as part from after_last union all select key, 2 from from_start) as k
   where key is not null
   order by part, key offset %(keys)s - 1 limit 1
)
update {schema}.lanes set last_key = last_seen.key
  from last_seen
 where lane = %(lane)s
   and (%(total)s::int is null
        or %(total)s::int > (select count(*) from {schema}.jobs where state = 'running' and lane <> queue and lane = %(lane)s));
