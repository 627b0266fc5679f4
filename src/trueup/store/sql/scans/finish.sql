-- underway -> done. Due again an interval after it was begun, and not before now. Fence: its lease, in this transaction.
-- Returns how many milliseconds it took, including the time in which no process ran it. Index: scans_pkey.
update {schema}.scans
   set underway = false, cursor = null, items = %(items)s, failed = %(failed)s, failures = 0, error = null, saved_at = t.now, finished_at = t.now,
       due_at = greatest(started_at + make_interval(secs => %(every)s::float8), t.now)
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
 where name = %(name)s
returning extract(epoch from t.now - started_at)::float8 * 1000::float8;
