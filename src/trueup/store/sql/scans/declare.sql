-- Registers a scan: due immediately, or after its first interval. A known scan keeps its position; but a shorter interval counts
-- from its last start, and one that keeps failing is tried again soon, because a new worker may bring the fix. One that was put off while
-- the clock was ahead is due after its interval.
-- Index: scans_pkey.
insert into {schema}.scans as s (name, due_at)
select %(name)s, t.now + make_interval(secs => case when %(run_at_start)s then 0 else %(every)s::float8 end)
  from (select coalesce(%(now)s::timestamptz, now()) as now) as t
on conflict (name) do update
   set due_at = case when s.underway then coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(first)s::float8)
                     else least(s.started_at, coalesce(%(now)s::timestamptz, now())) + make_interval(secs => %(every)s::float8) end
 where s.due_at > case when s.underway then coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(first)s::float8)
                       else least(s.started_at, coalesce(%(now)s::timestamptz, now())) + make_interval(secs => %(every)s::float8) end;
