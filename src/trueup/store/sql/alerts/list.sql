-- The alerts that are under way, and for how long each check has failed. Reads the whole table: a row per check at most.
select a.name, a.state, a.severity, a.problem, extract(epoch from {now} - a.since)::float8 as lasted_s, a.since
  from {schema}.alerts as a order by a.name;
