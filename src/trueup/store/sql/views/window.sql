-- The id down to which jobs in some states can be read without reading more than a number of them; null when there are fewer.
-- Index: jobs_pkey, history_id.
select greatest(
  (select id from {schema}.jobs where state = any(%(states)s::text[]) and id < %(before)s::bigint
    order by id desc offset %(window)s::bigint - 1::bigint limit 1),
  (select id from {schema}.history where state = any(%(states)s::text[]) and id < %(before)s::bigint
    order by id desc offset %(window)s::bigint - 1::bigint limit 1));
