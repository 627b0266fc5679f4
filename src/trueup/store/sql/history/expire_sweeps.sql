-- The record of sweeps past its retention. Returns a row while there may be more. Index: sweeps_started_at.
with gone as (
  delete from {schema}.sweeps
   where ctid = any(array(select ctid from {schema}.sweeps
                           where started_at < {now} - make_interval(secs => %(keep)s::float8) order by started_at limit 5000 for update skip locked))
  returning 1
)
select count(*) from gone having count(*) > 0;
