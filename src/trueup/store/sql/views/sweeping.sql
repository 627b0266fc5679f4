-- Reconcilers by state, rows in quarantine, how long ago anything was swept, and whose last sweep was ended by an error. Index for the rows: rows_set_aside.
select count(*) filter (where state = 'active' and not coalesce(paused_until > {now}, false)), count(*) filter (where state = 'paused'),
       count(*) filter (where state = 'active' and paused_until > {now}),
       (select count(*) from {schema}.rows where state in ('quarantined', 'discarded') and state = 'quarantined'),
       extract(epoch from {now} - max(last_swept_at))::float8, coalesce(array_agg(name order by name) filter (where last_error is not null), array[]::text[])
  from {schema}.reconcilers;
