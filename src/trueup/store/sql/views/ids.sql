-- A page of ids of jobs in some states that match, oldest first. Index: jobs_pkey, history_id.
select id from (
  (select id from {schema}.jobs where %(states)s::text[] operator(pg_catalog.&&) array['queued', 'running'] and state = any(%(states)s::text[]) and id > %(after_id)s::bigint and {matching}
    order by id limit %(limit)s)
  union all
  (select id from {schema}.history where state = any(%(states)s::text[]) and id > %(after_id)s::bigint and {matching}
    order by id limit %(limit)s)
) as both_tables
 order by id limit %(limit)s;
