-- Records that ticks of these schedules are refused, and when each is tried again: the backoff doubles with every refusal of a version.
-- Returns how often each was refused, and the pause in seconds.
insert into {schema}.schedule_refusals as r (name, version, error, refusals, refused_at, retry_at)
select g.name, g.version, g.error, 1, {now}, {now} + make_interval(secs => %(first)s::float8)
  from unnest(%(names)s::text[], %(versions)s::bigint[], %(errors)s::text[]) as g(name, version, error)
on conflict (name) do update
   set version = excluded.version, error = excluded.error, refused_at = excluded.refused_at,
       refusals = case when r.version = excluded.version then r.refusals + 1 else 1 end,
       retry_at = case when r.version = excluded.version
                       then {now} + make_interval(secs => least(%(longest)s::float8, %(first)s::float8 * power(2::float8, least(r.refusals, 20)::float8)))
                       else excluded.retry_at end
returning name, refusals, extract(epoch from retry_at - refused_at)::float8;
