-- Active schedules of code that no living worker declares, when one did for the last time (null: no release that says so ever did), and
-- whether it is safe to retire each: it was not declared for `retire_after`, and just as long there have been workers of the same
-- service, and of another release where releases are named, that do not declare it. Without a name, a service is known by its kinds.
-- A worker of an older release does not say what it declares: while one serves the schedule's queue, the schedule counts as declared.
-- Reads all schedules, which are few.
with {living}, declared as materialized (
  select distinct unnest(schedules) as name from living
)
select s.name, s.queue, s.kind, last.seen_at,
       coalesce(last.seen_at < {now} - make_interval(secs => %(retire_after)s::float8), false)
       and exists (select from {schema}.declarations as d, living as l
                    where s.name = any(d.schedules)
                      and l.living_since <= {now} - make_interval(secs => %(retire_after)s::float8)
                      and l.service is not distinct from d.service
                      and (l.service is not null or l.kinds operator(pg_catalog.&&) d.kinds)
                      and (l.release is null or l.release is distinct from d.release)) as may_be_retired
  from {schema}.schedules as s
  left join declared on declared.name = s.name
  left join lateral (select max(d.seen_at) as seen_at from {schema}.declarations as d where s.name = any(d.schedules)) as last on true
 where s.origin = 'code' and s.state = 'active' and declared.name is null
   and not exists (select from {schema}.workers as w
                    where w.declaration is null and w.rescued_at is null and w.lease_until > {now} and s.queue = any(w.queues))
 order by s.name;
