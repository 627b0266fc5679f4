-- Seconds until a scan is due (not positive: it is due), and whether a process holds its lease. No row back: it is not known.
-- Index: scans_pkey, leases_pkey.
select extract(epoch from s.due_at - t.now)::float8, coalesce(l.lease_until > t.now, false)
  from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) as t, {schema}.scans as s
  left join {schema}.leases as l on l.name = %(lease)s
 where s.name = %(name)s;
