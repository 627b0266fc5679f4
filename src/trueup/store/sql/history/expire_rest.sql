-- Deletes rows outside any day by their age. Returns a row while there may be more.
with gone as (
  delete from {schema}.{rest}
   where ctid = any(array(select ctid from {schema}.{rest}
                           where {column} < coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(keep)s::float8) limit 5000))
  returning 1
)
select count(*) from gone having count(*) > 0;
