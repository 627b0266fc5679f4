-- How many jobs in some states match, down to an id, up to a number. Index: jobs_pkey, history_id.
select (select count(*) from (select from {schema}.jobs where %(states)s::text[] operator(pg_catalog.&&) array['queued', 'running'] and state = any(%(states)s::text[]) and id >= %(down_to)s::bigint and {matching}
                               limit %(most)s) as live)
     + (select count(*) from (select from {schema}.history where state = any(%(states)s::text[]) and id >= %(down_to)s::bigint and {matching}
                               limit %(most)s) as ended);
