-- Deletes versions of schedules to which no kept tick belongs: a later one was in effect when the oldest day of the ledger began. So
-- the newest stays, unless it says that the schedule was deleted; that one goes last, or those before it would seem to be in effect.
-- Returns a row while there may be more. Reads the whole table, which has a row per kept change.
with kept as materialized (
  select date_trunc('day', {now} - make_interval(secs => %(keep)s::float8), 'UTC') as since
), reigning as materialized (
  select v.name, max(v.version) as version from {schema}.schedule_versions as v, kept where v.since <= kept.since group by v.name
), gone as (
  delete from {schema}.schedule_versions
   where ctid = any(array(select v.ctid from {schema}.schedule_versions as v join reigning as r using (name)
                           where v.version < r.version
                              or v.version = r.version and v.state = 'deleted'
                                 and not exists (select from {schema}.schedule_versions as other where other.name = v.name and other.version < v.version)
                           limit 5000 for update of v skip locked))
  returning 1
)
select count(*) from gone having count(*) > 0;
