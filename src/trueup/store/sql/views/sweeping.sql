-- Reconcilers by state, rows in quarantine, the time since the last sweep of any, those whose last sweep failed, and how many records of
-- rows there are for those that no living worker declares (none while that is unknown, as in views/reconcilers.sql).
-- Index for the rows: rows_set_aside; rows_pkey for those of each name, up to a number.
with recursive {living}, named as (
  (select k.reconciler as name from {schema}.rows as k order by k.reconciler limit 1)
  union all
  select (select k.reconciler from {schema}.rows as k where k.reconciler > n.name order by k.reconciler limit 1) from named as n where n.name is not null
), undeclared as (
  select n.name, (select count(*) from (select from {schema}.rows as k where k.reconciler = n.name limit 100000) as known) as rows
    from named as n
   where n.name is not null and not exists (select from living as l where n.name = any(l.reconcilers))
     and exists (select from living)
     and not exists (select from {schema}.workers as w where w.declaration is null and w.rescued_at is null and w.lease_until > {now})
)
select count(*) filter (where state = 'active' and not coalesce(paused_until > {now}, false)) as active, count(*) filter (where state = 'paused') as paused,
       count(*) filter (where state = 'active' and paused_until > {now}) as resting,
       (select count(*) from {schema}.rows where state in ('quarantined', 'discarded') and state = 'quarantined') as quarantined,
       extract(epoch from {now} - max(last_swept_at))::float8 as swept_ago_s, coalesce(array_agg(name order by name) filter (where last_error is not null), array[]::text[]) as failing,
       (select coalesce(jsonb_object_agg(u.name, u.rows), '{{}}') from undeclared as u) as undeclared
  from {schema}.reconcilers;
