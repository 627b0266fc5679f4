-- The declared schedules as they are stored: version and state are null where there is no row. `ours` is false while a living worker
-- that started later declares the same name: then its declaration counts. Index: declarations_pkey, schedules_pkey.
with {living}, later as materialized (
  select distinct unnest(l.schedules) as name
    from living as l join {schema}.declarations as d on d.digest = %(digest)s and l.digest <> d.digest and l.started_at > d.started_at
)
select declared.name, s.version, s.state, later.name is null as ours
  from {schema}.declarations as d
 cross join unnest(d.schedules) as declared(name)
  left join {schema}.schedules as s on s.name = declared.name
  left join later on later.name = declared.name
 where d.digest = %(digest)s
 order by declared.name;
