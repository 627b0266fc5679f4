-- The last heartbeat of any worker, when none is alive and it is more than `grace` ago: a current downtime, which the next worker
-- to register will record (workers/register).
select s.last_alive_at
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t,
       lateral (select greatest((select last_alive_at from {schema}.fleet), max(renewed_at)) as last_alive_at,
                       count(*) filter (where lease_until > t.now and rescued_at is null) as alive
                  from {schema}.workers) as s
 where s.alive = 0 and s.last_alive_at < t.now - make_interval(secs => %(grace)s::float8);
