-- The heartbeat: extends the lease of all jobs that a worker holds, with one row.
-- Fence: (holder), only while the lease has not expired and no worker has rescued its jobs. No row back: it is lost.
update {schema}.workers
   set renewed_at = t.now, lease_until = t.now + make_interval(secs => %(lease_for)s::float8), stopping = %(stopping)s,
       blocked = coalesce(%(blocked)s::jsonb operator(pg_catalog.||) pg_catalog.jsonb_build_object('at', t.now), blocked)
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
 where holder = %(holder)s and rescued_at is null and lease_until > t.now
returning lease_until;
