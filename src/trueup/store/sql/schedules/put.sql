-- Declares a schedule. The same declaration again changes nothing; another spec, policy or job makes a new version, whose ticks begin
-- now: earlier ticks are never decided again. A paused schedule stays paused. Version numbers continue those of a deleted schedule of
-- this name, as long as they are on record. One that was retired as undeclared after `resumed_since` continues from there. Fence: with an expected version (0: there must be none yet) any other is left as it is. Returns its
-- version when it changed.
with put as (
  insert into {schema}.schedules as s (name, origin, spec, policy, kind, queue, lane, priority, max_attempts, args, version, next_due_at, decided_until, created_at, changed_at, meta)
  select %(name)s, %(origin)s, %(spec)s::jsonb, %(policy)s::jsonb, %(kind)s, %(queue)s, %(lane)s, %(priority)s, %(max_attempts)s, %(args)s::jsonb,
         1 + coalesce((select max(version) from {schema}.schedule_versions where name = %(name)s), 0), %(next_due_at)s::timestamptz, %(at)s::timestamptz, %(at)s::timestamptz, %(at)s::timestamptz,
         %(meta)s::jsonb
   where coalesce(%(expected)s::bigint, 0) = 0 or exists (select from {schema}.schedules where name = %(name)s)
  on conflict (name) do update
     set origin = excluded.origin, spec = excluded.spec, policy = excluded.policy, kind = excluded.kind, queue = excluded.queue, lane = excluded.lane,
         priority = excluded.priority, max_attempts = excluded.max_attempts, args = excluded.args, meta = excluded.meta,
         state = case when s.state in ('retired', 'finished') then 'active' else s.state end,
         next_due_at = case when s.spec = excluded.spec and (s.state = 'active' or s.state = 'retired' and s.note = %(undeclared)s and s.changed_at > %(resumed_since)s::timestamptz)
                            then s.next_due_at else excluded.next_due_at end,
         decided_until = case when s.spec = excluded.spec and (s.state = 'active' or s.state = 'retired' and s.note = %(undeclared)s and s.changed_at > %(resumed_since)s::timestamptz)
                              then s.decided_until else greatest(s.decided_until, excluded.decided_until) end,
         changed_at = case when s.spec = excluded.spec and s.state = 'retired' and s.note = %(undeclared)s and s.changed_at > %(resumed_since)s::timestamptz
                           then s.changed_at else excluded.changed_at end,
         version = s.version + 1, note = case when s.state = 'paused' then s.note end
   where (%(expected)s::bigint is null or s.version = %(expected)s::bigint)
     and ((s.origin, s.spec, s.policy, s.kind, s.queue, s.lane, s.priority, s.max_attempts, s.args, s.meta)
           is distinct from (excluded.origin, excluded.spec, excluded.policy, excluded.kind, excluded.queue, excluded.lane, excluded.priority, excluded.max_attempts, excluded.args, excluded.meta)
      or s.state in ('retired', 'finished'))
  returning name, version, greatest(changed_at, decided_until) as since, state, spec
)
insert into {schema}.schedule_versions (name, version, since, state, spec)
select name, version, since, state, spec from put
returning version;
