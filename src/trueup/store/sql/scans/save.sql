-- Saves the cursor of a running scan; another process may resume there immediately. Fence: its lease, in this transaction.
-- Index: scans_pkey.
update {schema}.scans
   set cursor = %(cursor)s::jsonb, items = %(items)s, failed = %(failed)s, failures = %(failures)s, saved_at = t.now, due_at = t.now
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
 where name = %(name)s and underway;
