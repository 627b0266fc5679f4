-- Saves the cursor of a scan whose generator failed, and when it is tried again: the backoff grows with each failure, up to its
-- interval. Fence: its lease, in this transaction. Index: scans_pkey.
update {schema}.scans
   set cursor = %(cursor)s::jsonb, items = %(items)s, failed = %(failed)s, failures = %(failures)s, error = %(error)s, saved_at = t.now,
       due_at = t.now + make_interval(secs => least(%(every)s::float8, %(first)s::float8 * 2::float8 ^ least(%(failures)s::int - 1, 30)::float8))
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
 where name = %(name)s and underway;
