-- Seconds until the next tick of any schedule that this release can read, or until a refused one is tried again; null when there is
-- none. Index: schedules_due.
select extract(epoch from least(
         (select s.next_due_at from {schema}.schedules as s
           where s.state = 'active' and s.next_due_at is not null
             and not exists (select from {schema}.schedule_refusals as r where r.name = s.name and r.version = s.version)
             and not exists (select from unnest(%(unreadable_names)s::text[], %(unreadable_versions)s::bigint[]) as u(name, version)
                              where u.name = s.name and u.version = s.version)
           order by s.next_due_at
           limit 1),
         (select min(greatest(s.next_due_at, r.retry_at))
            from {schema}.schedule_refusals as r
            join {schema}.schedules as s on s.name = r.name and s.version = r.version
           where s.state = 'active' and s.next_due_at is not null
             and not exists (select from unnest(%(unreadable_names)s::text[], %(unreadable_versions)s::bigint[]) as u(name, version)
                              where u.name = s.name and u.version = s.version))
       ) - coalesce(%(now)s::timestamptz, clock_timestamp()))::float8;
