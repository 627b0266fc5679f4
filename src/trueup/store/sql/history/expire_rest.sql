-- Rows that landed outside any day go by age, in batches.
delete from {schema}.{rest}
 where ctid = any(array(select ctid from {schema}.{rest}
                         where finished_at < coalesce(%(now)s::timestamptz, now()) - make_interval(secs => %(keep)s::float8) limit 5000));
