-- Sweeps past their retention are forgotten, a part at a time. Index: sweeps_started_at.
delete from {schema}.sweeps where id = any(array(
  select id from {schema}.sweeps where started_at < {now} - make_interval(secs => %(keep)s::float8) order by started_at limit %(most)s));
