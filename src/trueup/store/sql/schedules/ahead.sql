-- Schedules that fire nothing until a moment which the clock has not reached, although they are active: their watermark was moved by a
-- clock that was ahead. Reads all schedules.
select name, decided_until, extract(epoch from decided_until - coalesce(%(now)s::timestamptz, now()))::float8
  from {schema}.schedules
 where state = 'active' and decided_until > coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(slack)s::float8)
 order by name;
