-- Reconcilers and scans by name, and whether a reconciler may sweep. Reads all of both, which are few.
select name, 'reconciler' as kind, case when state = 'active' and paused_until > {now} then 'resting' else state end as state, note, paused_until
  from {schema}.reconcilers
union all
select name, 'scan', 'active', null, null from {schema}.scans;
