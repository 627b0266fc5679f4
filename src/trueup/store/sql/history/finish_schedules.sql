-- Schedules without a next tick are finished: planners of older releases leave them active, and so does a resume after their last tick.
-- Returns a row while there may be more. Reads all active schedules.
with done as (
  update {schema}.schedules set state = 'finished', version = version + 1, changed_at = {now}
   where name = any(array(select name from {schema}.schedules
                           where state = 'active' and next_due_at is null and spec->>'kind'::text = 'once' limit 1000 for update skip locked))
  returning name, version, greatest(changed_at, decided_until) as since, state, spec
), noted as (
  insert into {schema}.schedule_versions (name, version, since, state, spec) select name, version, since, state, spec from done
)
select count(*) from done having count(*) > 0;
