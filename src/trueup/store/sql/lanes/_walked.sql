after_last as (
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
), walked as (
  select key, part from (select key, 1 as part from after_last union all select key, 2 from from_start) as k where key is not null
)
