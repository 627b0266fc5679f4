-- The arguments of some jobs, if they are few bytes; ended ones are looked for from an instant on. Index: jobs_pkey, history_id.
select id, args from {schema}.jobs
 where id = any(%(ids)s::bigint[]) and pg_column_size(args) <= %(most)s::int
union all
select id, args from {schema}.history
 where id = any(%(ids)s::bigint[]) and finished_at >= %(since)s::timestamptz and pg_column_size(args) <= %(most)s::int;
