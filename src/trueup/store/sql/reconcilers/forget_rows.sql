-- Forgets what is known about rows of a reconciler that no worker declares, a part at a time: how many were forgotten, and how many
-- are held by somebody, which are left. Index: rows_pkey.
with part as materialized (
  select k.key from {schema}.rows as k
   where k.reconciler = %(name)s and not (k.state = 'held' and k.due_at > {now})
   limit %(limit)s for update skip locked
), gone as (
  delete from {schema}.rows as k using part as s where k.reconciler = %(name)s and k.key = s.key
  returning 1
)
select (select count(*) from gone), (select count(*) from {schema}.rows as k where k.reconciler = %(name)s and k.state = 'held' and k.due_at > {now});
