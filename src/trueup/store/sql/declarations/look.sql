-- A heartbeat of the declaration, at most every half interval; lanes whose row is gone get one. Returns how many of the declared schedules have a row,
-- and the sum of their versions: both are as expected while nothing has changed. No row back: the declaration itself is gone.
-- Index: declarations_pkey, schedules_pkey, lanes_pkey.
with seen as (
  update {schema}.declarations
     set living_since = case when seen_at < {now} - make_interval(secs => %(retire_after)s::float8) then {now} else living_since end, seen_at = {now}
   where digest = %(digest)s and seen_at < {now} - make_interval(secs => %(every)s::float8 / 2::float8)
), made as (
  insert into {schema}.lanes (lane)
  select wanted.lane from unnest(%(lanes)s::text[]) as wanted(lane)
   where not exists (select from {schema}.lanes as l where l.lane = wanted.lane)
  on conflict do nothing
)
select (select count(s.name) from unnest(d.schedules) as declared(name) join {schema}.schedules as s on s.name = declared.name),
       (select coalesce(sum(s.version), 0)::bigint from unnest(d.schedules) as declared(name) join {schema}.schedules as s on s.name = declared.name)
  from {schema}.declarations as d
 where d.digest = %(digest)s;
