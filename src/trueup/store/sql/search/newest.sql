-- The largest id below `before` in these states, so that a search passes over ids that are gone. Index: jobs_pkey, history_id.
select max(id) from (
  (select id from {schema}.jobs where id < %(before)s::bigint and state = any(%(states)s::text[]) order by id desc limit 1)
  union all
  (select id from {schema}.history where id < %(before)s::bigint and state = any(%(states)s::text[]) order by id desc limit 1)
) as newest;
