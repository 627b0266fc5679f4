-- One schedule as it is stored.
select s.name, s.origin, s.state, s.spec, s.policy, s.kind, s.queue, s.lane, s.priority, s.max_attempts, s.args, s.version, s.next_due_at,
       s.decided_until, s.note, s.created_at, s.changed_at,
       (select jsonb_build_object('error', r.error, 'refusals', r.refusals, 'refused_at', r.refused_at, 'retry_at', r.retry_at)
          from {schema}.schedule_refusals as r where r.name = s.name and r.version = s.version) as refused,
       s.meta
  from {schema}.schedules as s where s.name = %(name)s;
