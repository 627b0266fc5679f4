-- May it sweep now, and when was that done last? Index: reconcilers_pkey.
select state = 'paused', extract(epoch from paused_until - {now})::float8, pauses, extract(epoch from {now} - last_swept_at)::float8, {now}
  from {schema}.reconcilers where name = %(name)s;
