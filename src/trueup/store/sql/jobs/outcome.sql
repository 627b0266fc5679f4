-- The outcome of a job: its live state, or how it ended. Index: jobs_pkey, history_id.
select state, term, holder, null::jsonb as result, null::text as reason, errors -> -1 as error, kind from {schema}.jobs where id = %(id)s
union all
select state, term, holder, result, reason, errors -> -1, kind from {schema}.history where id = %(id)s
 limit 1;
