-- Active schedules that fire nothing until a time in the future: their watermark was moved while the clock was ahead. Reads all
-- schedules.
select name, decided_until, extract(epoch from decided_until - coalesce(%(now)s::timestamptz, now()))::float8
  from {schema}.schedules
 where state = 'active' and decided_until > coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(slack)s::float8)
 order by name;
