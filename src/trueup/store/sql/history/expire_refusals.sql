-- Deletes refusals of versions of schedules, and of jobs, that no longer exist. Returns a row while there may be more. Reads all that
-- are refused.
with gone as (
  delete from {schema}.schedule_refusals
   where ctid = any(array(select r.ctid from {schema}.schedule_refusals as r
                           where not exists (select from {schema}.schedules as s where s.name = r.name and s.version = r.version)
                           limit 1000 for update skip locked))
  returning 1
), of_jobs as (
  delete from {schema}.job_refusals
   where ctid = any(array(select r.ctid from {schema}.job_refusals as r
                           where not exists (select from {schema}.jobs as j where j.id = r.job_id and j.term = r.term and j.state = r.state)
                           limit 1000 for update skip locked))
  returning 1
)
select (select count(*) from gone) + (select count(*) from of_jobs) where exists (select from gone) or exists (select from of_jobs);
