-- How many jobs are in one state; of live jobs with `failed` only those that have spent an attempt.
select (select count(*) from {schema}.jobs where state = %(state)s and (%(kind)s::text is null or kind = %(kind)s) and (not %(failed)s or attempt > 0))
     + (select count(*) from {schema}.history where state = %(state)s and (%(kind)s::text is null or kind = %(kind)s));
