-- A worker begins its life as a holder.
insert into {schema}.workers (holder, host, pid, release, queues, concurrency, started_at, renewed_at, lease_until)
select %(holder)s, %(host)s, %(pid)s, %(release)s, %(queues)s, %(concurrency)s, t.now, t.now, t.now + make_interval(secs => %(lease_for)s::float8)
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t;
