-- Is it known, may it sweep now, and when was that done last? One that is not known may. Index: reconcilers_pkey.
select r.name is not null, coalesce(r.state = 'paused', false), extract(epoch from r.paused_until - {now})::float8, coalesce(r.pauses, 0),
       extract(epoch from {now} - r.last_swept_at)::float8, {now}
  from (values (%(name)s::text)) as asked(name)
  left join {schema}.reconcilers as r on r.name = asked.name;
