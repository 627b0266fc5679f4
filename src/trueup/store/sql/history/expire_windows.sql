-- Unique windows that have passed. Index: unique_windows_until.
with old as (
  select ctid as slot from {schema}.unique_windows where taken_until <= coalesce(%(now)s::timestamptz, now()) limit 10000 for update skip locked
)
delete from {schema}.unique_windows where ctid = any(array(select slot from old)) returning kind;
