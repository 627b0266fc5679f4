-- Seconds until the next free slot of a rate limit. Index: rates_pkey.
select extract(epoch from next_at - {now})::float8 from {schema}.rates where name = %(name)s;
