-- As delete.sql, for a table with partitions: rows are found again by their keys. Index: the user's key, and one as for delete.sql.
-- Returns how many were picked and how many deleted, and how late the latest and the earliest of them were; how late each was only where
-- they differ, because looking at every row is expensive.
with picked as materialized (
  {oldest}
), hit as (
  delete from {table} as t using picked as p
   where {is_picked}
  returning {due} as due
)
select (select count(*) from picked), count(*), {late_of_min}, {late_of_max}, case when not {alike} then array(select {late} from hit) end from hit;
