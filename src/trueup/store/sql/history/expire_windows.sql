-- Unique windows that have passed. Returns a row while there may be more. Index: unique_windows_until.
with gone as (
  delete from {schema}.unique_windows
   where ctid = any(array(select ctid from {schema}.unique_windows
                           where taken_until <= coalesce(%(now)s::timestamptz, now()) limit 5000 for update skip locked))
  returning 1
)
select count(*) from gone having count(*) > 0;
