-- The id down to which jobs in some states can be read without reading more than a number of them; null when there are fewer.
-- Live jobs are not looked at when the states are those of ended ones. Index: jobs_pkey, history_id.
select greatest(
  (select id from {schema}.jobs where %(states)s::text[] operator(pg_catalog.&&) array['queued', 'running'] and state = any(%(states)s::text[]) and id < %(before)s::bigint
    order by id desc offset %(window)s::bigint - 1::bigint limit 1),
  (select id from {schema}.history where state = any(%(states)s::text[]) and id < %(before)s::bigint
    order by id desc offset %(window)s::bigint - 1::bigint limit 1));
