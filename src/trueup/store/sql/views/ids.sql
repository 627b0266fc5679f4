-- A page of ids in one state, oldest first; of live jobs with `failed` only those that have spent an attempt. Index: jobs_pkey, history_id.
select id from (
  (select id from {schema}.jobs where state = %(state)s and (%(kind)s::text is null or kind = %(kind)s) and (not %(failed)s or attempt > 0) and id > %(after_id)s order by id limit %(limit)s)
  union all
  (select id from {schema}.history where state = %(state)s and (%(kind)s::text is null or kind = %(kind)s) and id > %(after_id)s order by id limit %(limit)s)
) as both_tables
 order by id limit %(limit)s;
