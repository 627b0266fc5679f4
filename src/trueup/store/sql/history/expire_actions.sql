-- The record of what people did past its retention. Returns a row while there may be more. Index: actions_at.
with gone as (
  delete from {schema}.actions
   where ctid = any(array(select ctid from {schema}.actions
                           where at < {now} - make_interval(secs => %(keep)s::float8) order by at limit 5000 for update skip locked))
  returning 1
)
select count(*) from gone having count(*) > 0;
