-- One schedule as it is stored.
select name, origin, state, spec, policy, kind, queue, lane, priority, max_attempts, args, version, next_due_at, decided_until, note, created_at, changed_at
  from {schema}.schedules where name = %(name)s;
