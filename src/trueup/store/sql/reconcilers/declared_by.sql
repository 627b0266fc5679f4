-- Living workers that declare a reconciler: host and process id of each. Reads all workers, which are few.
select w.host, w.pid
  from {schema}.workers as w
  join {schema}.declarations as d on d.digest = w.declaration
 where w.rescued_at is null and w.lease_until > {now} and %(name)s = any(d.reconcilers)
 order by w.host, w.pid;
