-- How many seconds there are until the next tick of anything that this release can read; null when there is none. Index: schedules_due.
select extract(epoch from (
         select s.next_due_at from {schema}.schedules as s
          where s.state = 'active' and s.next_due_at is not null
            and not exists (select from unnest(%(unreadable_names)s::text[], %(unreadable_versions)s::bigint[]) as u(name, version)
                             where u.name = s.name and u.version = s.version)
          order by s.next_due_at
          limit 1) - coalesce(%(now)s::timestamptz, clock_timestamp()))::float8;
