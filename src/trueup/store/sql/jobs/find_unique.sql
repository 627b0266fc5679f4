-- The live job that holds a unique key. Index: jobs_unique.
select id, state from {schema}.jobs where kind = %(kind)s and unique_key = %(unique_key)s;
