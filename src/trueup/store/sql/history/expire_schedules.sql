-- Finished schedules past their retention are deleted; their ledger stays, and their last version says that they were deleted. Returns a
-- row while there may be more. Reads all schedules.
with gone as (
  delete from {schema}.schedules
   where name = any(array(select name from {schema}.schedules
                           where state = 'finished' and changed_at < {now} - make_interval(secs => %(keep)s::float8) limit 1000 for update skip locked))
  returning name, version, greatest({now}, decided_until) as since, spec
), noted as (
  insert into {schema}.schedule_versions (name, version, since, state, spec) select name, version + 1, since, 'deleted', spec from gone
)
select count(*) from gone having count(*) > 0;
