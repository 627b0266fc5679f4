-- The versions of each schedule that were in effect since a given time, in order; deleted ones too. `decided_until` is
-- null for those. Index: schedule_versions_pkey.
select v.name, v.since, v.state, v.spec, s.decided_until
  from {schema}.schedule_versions as v
  left join {schema}.schedules as s on s.name = v.name
 where v.since >= coalesce((select max(since) from {schema}.schedule_versions as before where before.name = v.name and before.since <= %(since)s), '-infinity')
 order by v.name, v.version;
