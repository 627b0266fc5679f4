-- Schedules that were refused and are to be tried again now, those that waited longest first. Reads all that are refused.
select s.name
  from {schema}.schedule_refusals as r
  join {schema}.schedules as s on s.name = r.name and s.version = r.version
 where s.state = 'active' and s.next_due_at <= {now} and r.retry_at <= {now}
   and not exists (select from unnest(%(unreadable_names)s::text[], %(unreadable_versions)s::bigint[]) as u(name, version)
                    where u.name = s.name and u.version = s.version)
 order by r.retry_at, s.name
 limit %(most)s;
