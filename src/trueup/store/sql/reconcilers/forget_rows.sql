-- Deletes the records about rows of a reconciler that no worker declares, a batch at a time: returns how many were deleted, and how many
-- stay because a worker holds the row. Index: rows_pkey.
with part as materialized (
  select k.key from {schema}.rows as k
   where k.reconciler = %(name)s and not (k.state = 'held' and k.due_at > {now})
   limit %(limit)s for update skip locked
), gone as (
  delete from {schema}.rows as k using part as s where k.reconciler = %(name)s and k.key = s.key
  returning 1
)
select (select count(*) from gone), (select count(*) from {schema}.rows as k where k.reconciler = %(name)s and k.state = 'held' and k.due_at > {now});
