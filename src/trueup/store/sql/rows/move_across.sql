-- As move.sql, for a table with partitions: rows are found again by their keys. Index: the user's key, and one as for move.sql.
-- Returns how many were picked and how many moved, and how late the latest and the earliest of them were; how late each was only where
-- they differ, or where not all picked rows were moved.
with picked as materialized (
  {oldest}
), moved as (
  update {table} as t set {assignments} from picked as p
   where {is_picked}
  returning {keys}{kept}
)
select count(*), (select count(*) from moved), {late_of_min}, {late_of_max},
       case when count(*) > (select count(*) from moved) or not {alike}
            then array(select {late} from picked as p join moved as h on {same_keys}) end
  from picked;
