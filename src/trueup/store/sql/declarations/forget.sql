-- Deletes declarations that no worker has made for `retire_after` and a day, unless one is the latest to declare a schedule that still
-- fires. Returns how many were deleted. Reads all declarations, of which there is one per change of the code.
with {living}, gone as (
  delete from {schema}.declarations as d
   where d.seen_at < {now} - make_interval(days => 1, secs => %(retire_after)s::float8)
     and not exists (select from living as l where l.digest = d.digest)
     and not exists (select from {schema}.schedules as s
                      where s.origin = 'code' and s.state in ('active', 'paused') and s.name = any(d.schedules)
                        and not exists (select from {schema}.declarations as later
                                         where s.name = any(later.schedules) and (later.seen_at, later.digest) > (d.seen_at, d.digest)))
  returning 1
)
select count(*) from gone;
