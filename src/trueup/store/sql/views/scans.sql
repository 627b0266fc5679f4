-- Scans, one or all, and the process that runs each. Index: scans_pkey and leases_pkey for one.
select s.name, s.cursor, s.underway, s.started_at, s.saved_at, s.finished_at, s.due_at, s.items, s.failed, s.failures, s.error, l.label as held_by
  from {schema}.scans as s
  left join {schema}.leases as l on l.name = 'scan:' || s.name and l.lease_until > {now}
 where %(name)s::text is null or s.name = %(name)s
 order by s.name;
