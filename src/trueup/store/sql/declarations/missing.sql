-- Schedules that living workers, or the calling code, declare and that do not fire: their state, or null where there is no row.
with {living}, wanted as (
  select unnest(schedules) as name from living union select unnest(%(declared)s::text[])
)
select wanted.name, s.state from wanted left join {schema}.schedules as s on s.name = wanted.name
 where s.name is null or s.state in ('retired', 'finished')
 order by wanted.name;
