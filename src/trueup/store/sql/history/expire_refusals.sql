-- Deletes refusals of versions that no longer exist. Returns a row while there may be more. Reads all that are refused.
with gone as (
  delete from {schema}.schedule_refusals
   where ctid = any(array(select r.ctid from {schema}.schedule_refusals as r
                           where not exists (select from {schema}.schedules as s where s.name = r.name and s.version = r.version)
                           limit 1000 for update skip locked))
  returning 1
)
select count(*) from gone having count(*) > 0;
