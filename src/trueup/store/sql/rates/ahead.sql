-- In how many seconds the next moment of a rate is free. Index: rates_pkey.
select extract(epoch from next_at - {now})::float8 from {schema}.rates where name = %(name)s;
