-- Which jobs rescue.sql would take, for when it is refused because of one of them. Index: jobs_held.
select j.id, j.kind
  from {schema}.jobs as j left join {schema}.workers as w on w.holder = j.holder
 where j.state = 'running' and (w.holder is null or w.lease_until <= coalesce(%(now)s::timestamptz, now()))
 order by j.id limit %(most)s;
