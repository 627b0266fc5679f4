-- Pauses, resumes or retires schedules. Resuming begins now: ticks of the pause are not caught up. Returns those that changed.
with changed as (
  update {schema}.schedules
     set state = %(state)s, note = %(note)s, version = version + 1, changed_at = t.now,
         next_due_at = case when %(state)s = 'active' then %(next_due_at)s::timestamptz else next_due_at end,
         decided_until = case when %(state)s = 'active' then greatest(decided_until, t.now) else decided_until end
    from (select coalesce(%(now)s::timestamptz, now()) as now) as t
   where name = any(%(names)s::text[]) and state = any(%(from_states)s::text[])
  returning name, version, greatest(changed_at, decided_until) as since, state, spec
)
insert into {schema}.schedule_versions (name, version, since, state, spec)
select name, version, since, state, spec from changed
returning name;
