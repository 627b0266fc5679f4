-- The living declarations that have this schedule: service and release of each.
with {living}
select service, release from living where %(name)s = any(schedules) order by started_at;
