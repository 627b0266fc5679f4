-- Deletes a schedule that was not declared in code, or a retired one; its ledger stays, and so do its versions, the last of which says
-- that it was deleted. Returns its name.
with gone as (
  delete from {schema}.schedules where name = %(name)s and (origin = 'people' or state = 'retired')
  returning name, version, greatest(%(at)s::timestamptz, decided_until) as since, spec
)
insert into {schema}.schedule_versions (name, version, since, state, spec)
select name, version + 1, since, 'deleted', spec from gone
returning name;
