-- Moves the watermark forward, never back. Compare-and-set on the version and the tick that was due: a schedule that another
-- transaction changed meanwhile keeps that change. Returns those that advanced.
update {schema}.schedules as s
   set next_due_at = a.next_due_at, decided_until = greatest(s.decided_until, a.decided_until)
  from unnest(%(names)s::text[], %(versions)s::bigint[], %(was_due_ats)s::timestamptz[], %(next_due_ats)s::timestamptz[], %(decided_untils)s::timestamptz[])
       as a(name, version, was_due_at, next_due_at, decided_until)
 where s.name = a.name and s.version = a.version and s.next_due_at is not distinct from a.was_due_at
returning s.name;
