-- Declares a schedule. The same again changes nothing; another spec, policy or job makes a new version, whose ticks begin
-- now: what was due before is never looked at again. A paused schedule stays paused. Returns its version when it changed.
with put as (
  insert into {schema}.schedules as s (name, origin, spec, policy, kind, queue, lane, priority, max_attempts, args, next_due_at, decided_until, created_at, changed_at)
  values (%(name)s, %(origin)s, %(spec)s::jsonb, %(policy)s::jsonb, %(kind)s, %(queue)s, %(lane)s, %(priority)s, %(max_attempts)s, %(args)s::jsonb,
          %(next_due_at)s, %(at)s, %(at)s, %(at)s)
  on conflict (name) do update
     set origin = excluded.origin, spec = excluded.spec, policy = excluded.policy, kind = excluded.kind, queue = excluded.queue, lane = excluded.lane,
         priority = excluded.priority, max_attempts = excluded.max_attempts, args = excluded.args,
         state = case when s.state = 'retired' then 'active' else s.state end,
         next_due_at = case when s.spec = excluded.spec and s.state = 'active' then s.next_due_at else excluded.next_due_at end,
         decided_until = case when s.spec = excluded.spec and s.state = 'active' then s.decided_until else greatest(s.decided_until, excluded.decided_until) end,
         version = s.version + 1, changed_at = excluded.changed_at, note = null
   where (s.origin, s.spec, s.policy, s.kind, s.queue, s.lane, s.priority, s.max_attempts, s.args)
           is distinct from (excluded.origin, excluded.spec, excluded.policy, excluded.kind, excluded.queue, excluded.lane, excluded.priority, excluded.max_attempts, excluded.args)
      or s.state = 'retired'
  returning name, version, changed_at, state, spec
)
insert into {schema}.schedule_versions (name, version, since, state, spec)
select name, version, changed_at, state, spec from put
returning version;
